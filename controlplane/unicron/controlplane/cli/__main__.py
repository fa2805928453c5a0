"""``python -m unicron.controlplane.cli`` is ``unicron``."""

from unicron.controlplane.cli.main import main

if __name__ == "__main__":
    main()
