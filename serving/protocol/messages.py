"""The messages of the Open Inference Protocol over gRPC, by their names in `open_inference.proto`.

They have their own descriptor pool: clients such as tritonclient register messages of the same
names, and the default pool accepts each name once. Regenerate with grpcio-tools after a change:

    protoc --descriptor_set_out=open_inference.binpb --pyi_out=. open_inference.proto
"""

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_FILE = Path(__file__).with_name("open_inference.binpb")
(_PROTO,) = FileDescriptorSet.FromString(_FILE.read_bytes()).file
_POOL = DescriptorPool()
_POOL.Add(_PROTO)

for _message in _PROTO.message_type:
    _name = f"{_PROTO.package}.{_message.name}"
    globals()[_message.name] = GetMessageClass(_POOL.FindMessageTypeByName(_name))

SERVICE = f"{_PROTO.package}.{_PROTO.service[0].name}"
METHODS = tuple(method.name for method in _PROTO.service[0].method)
