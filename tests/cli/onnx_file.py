"""ONNX models and .npy files as bytes, for tests: a page of code writes the used part of both formats."""
import ast
import pathlib
import struct

FLOAT, UINT8, INT32, INT64, STRING, BOOL, DOUBLE = 1, 2, 6, 7, 8, 9, 11
CODES = {FLOAT: "<f4", UINT8: "|u1", INT32: "<i4", INT64: "<i8", DOUBLE: "<f8"}
LETTERS = {"<f4": "f", "|u1": "B", "<i4": "i", "<i8": "q", "<f8": "d"}


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A number, or text, bytes or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def value_info(name, dtype, shape):
    dims = b"".join(field(1, field(2 if isinstance(d, str) else 1, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, dtype) + field(2, dims)))


def sequence_info(name, dtype):
    """A sequence of tensors of any shape."""
    return field(1, name) + field(2, field(4, field(1, field(1, field(1, dtype)))))


def tensor(name, dtype, shape, values):
    raw = struct.pack(f"<{len(values)}{LETTERS[CODES[dtype]]}", *values)
    return (b"".join(field(1, d) for d in shape) + field(2, dtype) + field(8, name) +
            field(9, raw))


def node(op, inputs, outputs, name="", numbers=(), domain="", metadata=(), lists=()):
    """`numbers`: pairs of an attribute's name and its whole number, none below 0; `lists`: the same
    for lists of numbers; `metadata`: pairs of texts."""
    return (b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) +
            field(3, name) + field(4, op) +
            b"".join(field(5, field(1, key) + field(3, number) + field(20, 2))
                     for key, number in numbers) +
            b"".join(field(5, field(1, key) + b"".join(field(8, n) for n in numbers) + field(20, 7))
                     for key, numbers in lists) + (field(7, domain) if domain else b"") +
            b"".join(field(9, field(1, key) + field(2, value)) for key, value in metadata))


def model(nodes, inputs, outputs, constants=(), opset=17, name="tiny", domains=()):
    graph = (b"".join(field(1, n) for n in nodes) + field(2, name) +
             b"".join(field(5, c) for c in constants) +
             b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs))
    return (field(1, 8) + field(2, "opkit's tests") + field(7, graph) + field(8, field(2, opset)) +
            b"".join(field(8, field(1, domain) + field(2, 1)) for domain in domains))


def write_npy(path, dtype, shape, values):
    code = CODES[dtype]
    header = str({"descr": code, "fortran_order": False, "shape": tuple(shape)})
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(values)}{LETTERS[code]}", *values))


def read_npy(path):
    """(dtype's code, shape, values in row-major order)"""
    data = pathlib.Path(path).read_bytes()
    assert data[:6] == b"\x93NUMPY", data[:6]
    wide = data[6] > 1
    length, = struct.unpack_from("<I" if wide else "<H", data, 8)
    begin = 12 if wide else 10
    header = ast.literal_eval(data[begin:begin + length].decode())
    assert not header["fortran_order"]
    values = data[begin + length:]
    letter = LETTERS[header["descr"]]
    count = len(values) // struct.calcsize(letter)
    return header["descr"], header["shape"], list(struct.unpack(f"<{count}{letter}", values))
