"""``python -m attnc``: the command line."""

from attnc.compiler.cli import main

if __name__ == "__main__":
    main()
