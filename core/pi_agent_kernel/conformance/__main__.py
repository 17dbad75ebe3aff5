"""Run `python -m pi_agent_kernel.conformance`."""

import sys

from pi_agent_kernel.conformance.command import main

if __name__ == "__main__":
    sys.exit(main())
