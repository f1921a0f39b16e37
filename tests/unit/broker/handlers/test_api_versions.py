"""What every client asks first."""

from dataclasses import dataclass

import pytest

from distributedlog.broker.handlers.api_versions import api_versions, make_unsupported_version_response
from distributedlog.broker.net.context import ConnectionSession, RequestContext
from distributedlog.broker.net.dispatch import load_handlers
from distributedlog.broker.services import Services
from distributedlog.controller.features import (
    GROUP_FEATURE,
    LEVEL_MAX,
    LEVEL_MIN,
    METADATA_FEATURE,
    TRANSACTION_FEATURE,
)
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.records import BrokerFeature, FeatureLevelSet, RegisterBroker
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid
from distributedlog.protocol.api_keys import OWN_APIS, SOFTWARE_NAME
from distributedlog.protocol.codec import decode_all, encode_bytes
from distributedlog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.unit.broker.server_stage import bare_services, settings_on

REQUEST = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.2.0")


@dataclass
class Known:
    image: MetadataImage


def services_with(image: MetadataImage) -> Services:
    services = bare_services(settings_on())
    services.metadata = Known(image)
    return services


def asked(
    version: int, image: MetadataImage | None = None, request: ApiVersionsRequest = REQUEST
) -> ApiVersionsResponse:
    """The answer, as the client reads it."""
    load_handlers()
    context = RequestContext("User:ANONYMOUS", "PLAINTEXT", None, "127.0.0.1", 1, version, 0, 0)
    response = api_versions(services_with(image or MetadataImage()), request, context)
    assert isinstance(response, ApiVersionsResponse)
    return decode_all(ApiVersionsResponse, version, encode_bytes(response, version))


def ranges(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_every_api_that_is_served_is_advertised_in_every_version(version: int) -> None:
    response = asked(version)
    assert response.error_code == 0
    served = {key: (low, high) for key, low, high in load_handlers().advertised()}
    assert ranges(response) == {key: served[key] for key in served if key not in OWN_APIS}
    assert ranges(response)[18] == (0, 4)


def test_the_name_of_a_clients_software_is_kept_for_its_connection() -> None:
    session = ConnectionSession()
    context = RequestContext("User:ANONYMOUS", "PLAINTEXT", None, "127.0.0.1", 1, 4, 0, 0, session)
    request = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="1.0")
    api_versions(services_with(MetadataImage()), request, context)
    assert context.software_name == "librdkafka"


def test_apis_of_our_own_are_shown_to_our_own_client_alone() -> None:
    ours = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1.0")
    assert ranges(asked(4, request=ours)).keys() - ranges(asked(4)).keys() == OWN_APIS
    assert not OWN_APIS & ranges(asked(2)).keys()


def test_produce_is_advertised_from_zero_though_it_is_served_from_three() -> None:
    assert ranges(asked(0))[0][0] == 0
    assert load_handlers().by_key[0].versions[0] == 3


def test_what_older_librdkafka_looks_for_is_within_the_ranges() -> None:
    advertised = ranges(asked(0))
    for key, version in [(0, 0), (0, 7), (1, 4), (1, 10), (2, 1), (3, 4), (10, 0), (22, 0)]:
        low, high = advertised[key]
        assert low <= version <= high, f"API {key} must have version {version}"


def test_a_version_beyond_is_answered_in_the_oldest_form_with_what_may_be_asked() -> None:
    response = decode_all(ApiVersionsResponse, 0, encode_bytes(make_unsupported_version_response(), 0))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ranges(response) == {18: (0, 4)}


@pytest.mark.parametrize("name", ["", "-kafka", "kafka-", "ka fka", "kafka\n", "käfka"])
def test_a_client_that_does_not_name_itself_properly_is_refused_where_names_are_sent(name: str) -> None:
    for request in (
        ApiVersionsRequest(client_software_name=name, client_software_version="1"),
        ApiVersionsRequest(client_software_name="kafka", client_software_version=name),
    ):
        assert asked(3, request=request).error_code == ErrorCode.INVALID_REQUEST
        assert asked(2, request=request).error_code == 0


def test_features_are_those_of_the_registration_and_of_the_cluster() -> None:
    registered = RegisterBroker(
        broker_id=1,
        incarnation_id=Uuid(bytes(15) + b"\x01"),
        broker_epoch=1,
        end_points=[],
        features=[
            BrokerFeature(name=METADATA_FEATURE, min_supported_version=1, max_supported_version=2),
            BrokerFeature(name="group.version", min_supported_version=0, max_supported_version=1),
        ],
        rack=None,
    )
    level = FeatureLevelSet(name=METADATA_FEATURE, feature_level=2)
    image = MetadataImage().apply([level, registered], 41)
    newest, older = asked(4, image), asked(3, image)
    assert {each.name: (each.min_version, each.max_version) for each in newest.supported_features} == {
        METADATA_FEATURE: (1, 2),
        "group.version": (0, 1),
    }
    assert [each.name for each in older.supported_features] == [METADATA_FEATURE]
    assert [(each.name, each.max_version_level) for each in newest.finalized_features] == [
        (METADATA_FEATURE, 2)
    ]
    assert newest.finalized_features_epoch == 41


def test_a_broker_that_is_not_registered_yet_says_what_it_was_built_with() -> None:
    response = asked(4)
    assert {each.name: (each.min_version, each.max_version) for each in response.supported_features} == {
        METADATA_FEATURE: (LEVEL_MIN, LEVEL_MAX),
        GROUP_FEATURE: (0, 1),
        TRANSACTION_FEATURE: (0, 2),
    }
    assert response.finalized_features == []
