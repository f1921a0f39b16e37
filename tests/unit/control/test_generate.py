"""The generated code is what the protos say, and what is served is what they declare."""

import os
from importlib import import_module

import pytest

from distributedlog.control import generate
from distributedlog.control.credentials import AUTHENTICATE, EXCHANGE, SUBMIT, WATCH_METADATA

MODULES = [(package, name) for package, names in generate.PACKAGES.items() for name in names]


@pytest.mark.parametrize("package", generate.PACKAGES)
def test_the_generated_code_is_that_of_the_protos(package: str) -> None:
    made = generate.generate(package)
    directory = generate.generated_of(package)
    on_disk = {name for name in os.listdir(directory) if name.endswith((".py", ".pyi"))}
    assert on_disk == {*made, "__init__.py"}
    for name, text in made.items():
        with open(os.path.join(directory, name), encoding="utf-8") as committed:
            assert committed.read() == text, f"{name} is old: run python -m distributedlog.control.generate"


@pytest.mark.parametrize("package", generate.PACKAGES)
def test_every_proto_is_generated(package: str) -> None:
    protos = {name.removesuffix(".proto") for name in os.listdir(generate.protos_of(package))}
    assert protos == set(generate.PACKAGES[package])


def test_what_we_call_is_what_the_protos_declare() -> None:
    declared = set()
    for package, name in MODULES:
        descriptor = import_module(f"distributedlog.{package}._generated.{name}_pb2").DESCRIPTOR
        assert descriptor.package == "dlog.v1"
        for service in descriptor.services_by_name.values():
            declared |= {f"/{service.full_name}/{method.name}" for method in service.methods}
    gateway = {
        f"/dlog.v1.BrokerService/{name}" for name in ("Produce", "Fetch", "GetMetadata", "HealthCheck")
    }
    assert declared == {AUTHENTICATE, SUBMIT, EXCHANGE, WATCH_METADATA} | gateway


@pytest.mark.parametrize(("package", "name"), MODULES)
def test_the_code_loads_with_every_protobuf_that_we_allow(package: str, name: str) -> None:
    """No newer than protobuf 6.33: that is the least our package asks for."""
    with open(os.path.join(generate.generated_of(package), f"{name}_pb2.py"), encoding="utf-8") as module:
        assert "# Protobuf Python Version: 6.31.1\n" in module.read()
