"""Fixtures of the package's tests. OPKIT_TEST_LIBRARIES names the folder of the examples' libraries,
OPKIT_TEST_SOURCE the repository."""
import os
from pathlib import Path

import pytest

import opkit

SOURCE = Path(__file__).with_name("operators.cc")


@pytest.fixture(scope="session")
def gemm():
    """examples/library/gemm.cc, loaded: my_gemm and my_fast_gemm."""
    return opkit.load(Path(os.environ["OPKIT_TEST_LIBRARIES"]) / "libgemm.so")


@pytest.fixture(scope="session")
def operators():
    """operators.cc, loaded: TimesK, RunningSum, WaitFor and Fails."""
    return opkit.load(SOURCE, flags=["-O0", "-DFACTOR=3"])
