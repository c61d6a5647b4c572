"""A multi-node lab in network namespaces, for people (`lab/lab`) and for tests."""

from .core import Lab
from .folder import Folder
from .kube import Kube, KubeError
from .netns import CommandError, wait_until
from .probe import Probe
from .promptly import promptly, seconds_until
from .ready import wait_ready
from .stream import Report, Stream

__all__ = ["CommandError", "Folder", "Kube", "KubeError", "Lab", "Probe", "Report", "Stream",
           "promptly", "seconds_until", "wait_ready", "wait_until"]
