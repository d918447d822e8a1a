// TensorProto messages become tensors, whichever of its fields the values are in; what cannot be
// one is an Error that names the tensor.
#include <doctest/doctest.h>

#include <functional>
#include <protozero/pbf_writer.hpp>

#include "opkit/interop/onnx.hpp"
#include "support/error_of.hpp"

namespace tensor_test {
using namespace opkit;

namespace {

enum Field { kDims = 1, kType, kSegment, kFloats, kInt32s, kStrings, kInt64s, kName, kRaw };
enum { kDoubles = 10, kUInt64s = 11, kExternal = 13, kLocation = 14 };

std::string Message(int type, const std::vector<int64_t>& dims,
                    const std::function<void(protozero::pbf_writer&)>& values,
                    const char* name = "w") {
  std::string out;
  protozero::pbf_writer writer(out);
  for (int64_t extent : dims) writer.add_int64(kDims, extent);
  writer.add_int32(kType, type);
  writer.add_string(kName, name);
  if (values) values(writer);
  return out;
}
template <class T>
std::string Raw(int type, const std::vector<int64_t>& dims, const std::vector<T>& values) {
  return Message(type, dims, [&](protozero::pbf_writer& writer) {
    writer.add_bytes(kRaw, reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  });
}
std::string Int32s(int type, const std::vector<int64_t>& dims, const std::vector<int32_t>& values) {
  return Message(type, dims, [&](protozero::pbf_writer& writer) {
    writer.add_packed_int32(kInt32s, values.begin(), values.end());
  });
}
std::string What(const std::string& message) {
  return ErrorOf([&] { ReadOnnxTensor(message); }).what();
}
template <class T>
std::vector<T> Values(const std::string& message) {
  return ReadOnnxTensor(message).ToVector<T>();
}

}  // namespace

TEST_CASE("Raw data of every dtype is read to the bit") {
  constexpr DType kTypes[] = {
      DType::kUndefined,  DType::kFloat32, DType::kUInt8,  DType::kInt8,      DType::kUInt16,
      DType::kInt16,      DType::kInt32,   DType::kInt64,  DType::kUndefined, DType::kBool,
      DType::kFloat16,    DType::kFloat64, DType::kUInt32, DType::kUInt64,    DType::kComplex64,
      DType::kComplex128, DType::kBFloat16};
  for (int type = 1; type <= 16; ++type) {
    const DType dtype = kTypes[type];
    if (dtype == DType::kUndefined) continue;
    std::vector<uint8_t> bytes(static_cast<size_t>(6 * ItemSize(dtype)));
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<uint8_t>(dtype == DType::kBool ? i % 2 : 255 - 7 * i);
    const Tensor tensor = ReadOnnxTensor(Raw(type, {2, 3}, bytes));
    CAPTURE(ToString(dtype));
    CHECK(tensor.dtype() == dtype);
    CHECK(tensor.shape() == Shape{2, 3});
    CHECK(std::memcmp(tensor.raw_data(), bytes.data(), bytes.size()) == 0);
  }
}

TEST_CASE("Typed data is read from the field of its dtype, packed or not") {
  CHECK(Values<int8_t>(Int32s(3, {3}, {-128, 0, 127})) == std::vector<int8_t>{-128, 0, 127});
  CHECK(Values<uint16_t>(Int32s(4, {2}, {65535, 1})) == std::vector<uint16_t>{65535, 1});
  CHECK(Values<int32_t>(Int32s(6, {2}, {INT32_MIN, INT32_MAX})) ==
        std::vector<int32_t>{INT32_MIN, INT32_MAX});
  CHECK(Values<bool>(Int32s(9, {3}, {0, 1, 2})) == std::vector<bool>{false, true, true});
  const Tensor half = ReadOnnxTensor(Int32s(10, {2}, {0x3c00, 0xfbff}));
  CHECK(half.data<float16>()[0] == 1.f);
  CHECK(half.data<float16>()[1] == -65504.f);
  CHECK(ReadOnnxTensor(Int32s(16, {}, {0x4049})).data<bfloat16>()[0] == 3.140625f);

  const auto with = [](auto&& write) { return std::function<void(protozero::pbf_writer&)>(write); };
  const std::vector<float> floats{1.5f, -0.f, 3e38f, 4.f};
  const std::string packed =
      Message(1, {4}, with([&](protozero::pbf_writer& writer) {
                writer.add_packed_float(kFloats, floats.begin(), floats.begin() + 2);
                writer.add_packed_float(kFloats, floats.begin() + 2, floats.end());
              }));
  CHECK(Values<float>(packed) == floats);
  const std::string single = Message(1, {2, 2}, with([&](protozero::pbf_writer& writer) {
                                       for (float value : floats) writer.add_float(kFloats, value);
                                     }));
  CHECK(Values<float>(single) == floats);
  const Tensor complex =
      ReadOnnxTensor(Message(14, {2}, with([&](protozero::pbf_writer& writer) {
                               writer.add_packed_float(kFloats, floats.begin(), floats.end());
                             })));
  CHECK(complex.dtype() == DType::kComplex64);
  CHECK(std::memcmp(complex.raw_data(), floats.data(), 16) == 0);
  const std::vector<double> doubles{0.1, -1e300};
  CHECK(Values<double>(Message(11, {2}, with([&](protozero::pbf_writer& writer) {
                                 writer.add_packed_double(kDoubles, doubles.begin(), doubles.end());
                               }))) == doubles);
  const std::vector<int64_t> longs{INT64_MIN, -1, INT64_MAX};
  CHECK(Values<int64_t>(Message(7, {3}, with([&](protozero::pbf_writer& writer) {
                                  writer.add_packed_int64(kInt64s, longs.begin(), longs.end());
                                }))) == longs);
  CHECK(Values<int64_t>(Message(7, {3}, with([&](protozero::pbf_writer& writer) {
                                  for (int64_t value : longs) writer.add_int64(kInt64s, value);
                                }))) == longs);
  const std::vector<uint64_t> unsigneds{UINT64_MAX, 7};
  const auto write_unsigned = with([&](protozero::pbf_writer& writer) {
    writer.add_packed_uint64(kUInt64s, unsigneds.begin(), unsigneds.end());
  });
  CHECK(Values<uint64_t>(Message(13, {2}, write_unsigned)) == unsigneds);
  CHECK(What(Message(12, {2}, write_unsigned)) ==
        "tensor 'w': its value -1 does not fit in the 32-bit unsigned integer of its type");
}

TEST_CASE("Elements of 2, 4 and 8 bits are read from bytes and from int32_data") {
  const auto bytes_of = [](const Tensor& tensor) {
    const auto* bytes = static_cast<const uint8_t*>(tensor.raw_data());
    return std::vector<uint8_t>(bytes, bytes + tensor.nbytes());
  };
  using Bytes = std::vector<uint8_t>;
  const std::pair<int, DType> types[] = {{17, DType::kFloat8E4M3FN}, {18, DType::kFloat8E4M3FNUZ},
                                         {19, DType::kFloat8E5M2},   {20, DType::kFloat8E5M2FNUZ},
                                         {21, DType::kUInt4},        {22, DType::kInt4},
                                         {23, DType::kFloat4E2M1},   {24, DType::kFloat8E8M0},
                                         {25, DType::kUInt2},        {26, DType::kInt2}};
  for (const auto& [number, dtype] : types) {
    CAPTURE(dtype);
    const int64_t count = IsPacked(dtype) ? 3 * 8 / BitSize(dtype) : 3;
    const Tensor raw = ReadOnnxTensor(Raw<uint8_t>(number, {count}, {0x12, 0xff, 0x80}));
    CHECK(raw.dtype() == dtype);
    CHECK(raw.shape() == Shape{count});
    CHECK(bytes_of(raw) == Bytes{0x12, 0xff, 0x80});
    CHECK(bytes_of(ReadOnnxTensor(Int32s(number, {count}, {0x12, 255, 0x80}))) ==
          Bytes{0x12, 0xff, 0x80});
  }
  // The bits behind the last element are cleared.
  CHECK(bytes_of(ReadOnnxTensor(Raw<uint8_t>(22, {3}, {0x21, 0xf3}))) == Bytes{0x21, 0x03});
  CHECK(bytes_of(ReadOnnxTensor(Int32s(26, {5}, {0xff, 0xff}))) == Bytes{0xff, 0x03});
  CHECK(ReadOnnxTensor(Raw<uint8_t>(22, {0, 3}, {})).numel() == 0);
  CHECK(What(Raw<uint8_t>(22, {5}, {1, 2})) ==
        "tensor 'w': its data has 2 bytes, but int4[5] needs 3");
  CHECK(What(Int32s(22, {5}, {1, 2})) == "tensor 'w': it has 2 values, but int4[5] needs 3");
  CHECK(Contains(What(Int32s(22, {1}, {256})), "its value 256 does not fit"));
  CHECK(Contains(What(Int32s(17, {1}, {-1})), "its value -1 does not fit"));
}

TEST_CASE("Scalars, empty tensors and dims in one packed field") {
  CHECK(ReadOnnxTensor(Raw<float>(1, {}, {2.f})).shape() == Shape{});
  CHECK(ReadOnnxTensor(Raw<float>(1, {0, 5}, {})).shape() == Shape{0, 5});
  CHECK(ReadOnnxTensor(Message(1, {3, 0}, nullptr)).initialized());
  std::string packed;
  protozero::pbf_writer writer(packed);
  const std::vector<int64_t> dims{2, 1};
  writer.add_packed_int64(kDims, dims.begin(), dims.end());
  writer.add_int32(kType, 1);
  writer.add_bytes(kRaw, std::string(8, '\0'));
  CHECK(ReadOnnxTensor(packed).shape() == Shape{2, 1});
}

TEST_CASE("Bools that are neither 0 nor 1 are true") {
  CHECK(Values<bool>(Raw<uint8_t>(9, {3}, {0, 255, 1})) == std::vector<bool>{false, true, true});
}

TEST_CASE("Strings are read from string_data alone") {
  const auto texts = [](std::vector<int64_t> dims) {
    return Message(
        8, dims,
        [](protozero::pbf_writer& writer) {
          writer.add_string(kStrings, "hello");
          writer.add_string(kStrings, "");
        },
        "labels");
  };
  CHECK(Values<std::string>(texts({2})) == std::vector<std::string>{"hello", ""});
  CHECK(ReadOnnxTensor(texts({1, 2})).shape() == Shape{1, 2});
  CHECK(What(texts({3})) == "tensor 'labels': it has 2 values, but string[3] needs 3");
  CHECK(What(Raw<char>(8, {1}, {'a'})) ==
        "tensor 'w': its strings are in raw data, but belong in string_data");
  CHECK(Values<std::string>(Message(8, {0}, nullptr)).empty());
}

TEST_CASE("A tensor that opkit cannot hold is an Error that names it") {
  CHECK(What(Raw<uint8_t>(0, {1}, {0})) ==
        "tensor 'w': element type 0 (undefined) is none of ONNX's");
  CHECK(Contains(What(Raw<uint8_t>(99, {1}, {0})), "element type 99 (unknown)"));
}

TEST_CASE("Values that do not match the shape are an Error") {
  CHECK(What(Raw<float>(1, {2, 3}, {1, 2, 3})) ==
        "tensor 'w': its data has 12 bytes, but float32[2, 3] needs 24");
  CHECK(What(Int32s(6, {2}, {1, 2, 3})) == "tensor 'w': it has 3 values, but int32[2] needs 2");
  CHECK(What(Message(1, {5}, nullptr)) == "tensor 'w': it has 0 values, but float32[5] needs 5");
  CHECK(What(Int32s(7, {1}, {1})) ==
        "tensor 'w': its values are in int32_data, but those of int64 belong in int64_data");
  CHECK(What(Int32s(3, {1}, {128})) ==
        "tensor 'w': its value 128 does not fit in the 8-bit integer of its type");
  CHECK(Contains(What(Raw<float>(1, {-1}, {1})), "negative extent -1"));
  // Nothing of this size is allocated before it is compared with what is there.
  const int64_t huge = int64_t{1} << 40;
  CHECK(Contains(What(Raw<float>(1, {huge}, {1})), "its data has 4 bytes"));
  CHECK(Contains(What(Int32s(6, {huge}, {1})), "it has 1 values"));
  CHECK(ErrorOf([&] {
          ReadOnnxTensor(Raw<float>(1, {huge, huge}, {1}));
        }).code() == ErrorCode::kOutOfRange);
  CHECK(Contains(What(Raw<float>(1, {huge, huge, 0}, {})), "64-bit count"));
  CHECK(Contains(What(Raw<float>(1, std::vector<int64_t>(65, 1), {1})), "more than 64 dimensions"));
  const std::string both = Message(6, {1}, [](protozero::pbf_writer& writer) {
    writer.add_bytes(kRaw, "1234");
    writer.add_int32(kInt32s, 1);
  });
  CHECK(What(both) == "tensor 'w': it has values in int32_data and in raw_data");
  const std::string two = Message(6, {1}, [](protozero::pbf_writer& writer) {
    writer.add_int32(kInt32s, 1);
    writer.add_int64(kInt64s, 1);
  });
  CHECK(What(two) == "tensor 'w': it has values in int32_data and in int64_data");
}

TEST_CASE("Damaged bytes are an Error, wherever they end") {
  const std::string whole = Int32s(6, {2, 1}, {100000, -5});
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(ReadOnnxTensor(whole.substr(0, size)), Error);
  }
  std::string wrong;
  protozero::pbf_writer(wrong).add_string(kType, "float");
  CHECK(What(wrong) ==
        "tensor: field 2 should hold an integer, but its wire type is 2; the file is damaged, or "
        "not an ONNX file");
  CHECK(Contains(What(std::string("\x0b")), "the bytes end early or are damaged"));
  CHECK(Contains(
      What(Message(1, {1},
                   [](protozero::pbf_writer& writer) { writer.add_bytes(kFloats, "12345"); })),
      "damaged"));
}

TEST_CASE("External data needs a model with a folder") {
  const std::string external = Message(1, {1}, [](protozero::pbf_writer& writer) {
    protozero::pbf_writer entry(writer, kExternal);
    entry.add_string(1, "location");
    entry.add_string(2, "weights.bin");
    entry.commit();
    writer.add_int32(kLocation, 1);
  });
  CHECK(What(external) ==
        "tensor 'w': its data is in the file 'weights.bin', and external data cannot be read here");
}

}  // namespace tensor_test
