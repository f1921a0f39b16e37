"""What the three APIs of ACLs have in common: there is no authorizer, so there are no ACLs.

Each is answered with SECURITY_DISABLED, as by a Kafka broker without `authorizer.class.name`, and in its
words: `kafka-acls.sh` prints them.
"""

from typing import Final

from distributedlog.model.error_codes import ErrorCode

NO_AUTHORIZER: Final = ErrorCode.SECURITY_DISABLED
NO_AUTHORIZER_TEXT: Final = "No Authorizer is configured."
