"""The command line as `python -m kikuchi`."""

from kikuchi.cli.startup import main

if __name__ == "__main__":
    main()
