"""A multi-node lab in network namespaces, for people (`lab/lab`) and for tests."""

from .core import Lab
from .manifests import Manifests
from .netns import CommandError, wait_until
from .probe import Probe
from .ready import wait_ready
from .statuses import Statuses
from .stream import Report, Stream

__all__ = ["CommandError", "Lab", "Manifests", "Probe", "Report", "Statuses", "Stream",
           "wait_ready", "wait_until"]
