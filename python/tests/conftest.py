"""Fixtures of the package's tests. OPKIT_TEST_LIBRARIES names the folder of the examples' libraries."""
import os
from pathlib import Path

import pytest

import opkit


@pytest.fixture(scope="session")
def gemm():
    """examples/library/gemm.cc, loaded: my_gemm and my_fast_gemm."""
    return opkit.load(Path(os.environ["OPKIT_TEST_LIBRARIES"]) / "libgemm.so")
