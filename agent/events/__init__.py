"""Recording what turns tell, and following it from another connection or process (T10). The log is `memory`'s."""

from ._channel import Channel
from ._follower import EventFollower
from ._recorder import Recorder
from ._recording import Ending, Recording, Tell
from ._together import together

__all__ = ["Channel", "Ending", "EventFollower", "Recorder", "Recording", "Tell", "together"]
