"""``python -m consumer`` is ``oncepool``."""

from consumer.cli import main

if __name__ == "__main__":
    main()
