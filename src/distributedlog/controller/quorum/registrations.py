"""Controllers: where each is reached, and the storage it votes with, so that all others know.

Every controller registers, one that votes and one that could: when it starts, and whenever the image does not
say of it what is so.  A node that was removed from the voters is forgotten, unless it has registered anew
since.  So the addresses of voters that came later are known to all, whatever their settings say.

A cluster at a level below LEVEL_CONTROLLERS keeps no registrations: its voters are those of the settings.
"""

from typing import Final

from distributedlog.controller.features import has_controllers
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.records import ControllerForgotten, ControllerRegistered
from distributedlog.controller.requests import ForgetControllerRequest, RegisterControllerRequest
from distributedlog.controller.snapshots import controller_record
from distributedlog.model.errors import (
    InconsistentClusterIdError,
    InvalidRegistrationError,
    PolicyViolationError,
)
from distributedlog.protocol.schema import Message

CONTROLLERS_MAX: Final = 100
HOST_LENGTH_MAX: Final = 253
PORT_MAX: Final = 65_535
INCARNATION_MAX: Final = 2**63 - 1


def register(image: MetadataImage, request: RegisterControllerRequest) -> list[Message]:
    """Returns the record, none if the image says so already or the cluster keeps none."""
    given = request.registration
    if image.cluster_id != request.cluster_id:
        raise InconsistentClusterIdError(
            f"controller {given.controller_id} is of the cluster {request.cluster_id[:100]!r}"
        )
    if not 0 <= given.controller_id < 2**31 or not 0 <= given.incarnation <= INCARNATION_MAX:
        raise InvalidRegistrationError(f"{given.controller_id}@{given.incarnation} cannot be a controller")
    if not given.host or len(given.host) > HOST_LENGTH_MAX or not 0 < given.port <= PORT_MAX:
        raise InvalidRegistrationError(f"controller {given.controller_id} names no address")
    known = image.controllers.get(given.controller_id)
    if known == given or not has_controllers(image.level):
        return []
    if known is None and len(image.controllers) >= CONTROLLERS_MAX:
        raise PolicyViolationError(f"{CONTROLLERS_MAX} controllers are registered already")
    record: ControllerRegistered = controller_record(given)
    return [record]


def forget(image: MetadataImage, request: ForgetControllerRequest) -> list[Message]:
    """Returns the record, none if the controller is registered otherwise by now, or is not."""
    gone = request.registration
    if image.controllers.get(gone.controller_id) != gone:
        return []
    return [ControllerForgotten(controller_id=gone.controller_id)]
