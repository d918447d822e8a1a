"""python -m opkit: the command line of opkit."""
import os
import sys

from . import get_program


def main():
    program = get_program()
    if not os.path.exists(program):
        sys.exit("opkit: this package was built without the command line (it needs CLI11, protozero, "
                 "nlohmann_json and Eigen 3)")
    os.environ.setdefault("PYTHON", sys.executable)  # what `opkit check --via` runs
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
