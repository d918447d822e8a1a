#include "opkit/core/dlpack.hpp"

#include <dlpack/dlpack.h>
#include <doctest/doctest.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/test_allocator.hpp"

namespace dlpack_test { namespace {

using opkit::Device;
using opkit::DeviceType;
using opkit::DType;
using opkit::ErrorCode;
using opkit::FromDLPack;
using opkit::Shape;
using opkit::Tensor;
using opkit::ToDLPack;
using opkit::ToDLPackVersioned;
namespace ours = opkit::dlpack;

#define SAME_FIELD(type, field)                                          \
  static_assert(offsetof(ours::type, field) == offsetof(::type, field)); \
  static_assert(sizeof(ours::type::field) == sizeof(::type::field));     \
  static_assert(std::is_signed_v<decltype(ours::type::field)> ==         \
                SignedField<decltype(::type::field)>())
#define SAME_STRUCT(type)                              \
  static_assert(sizeof(ours::type) == sizeof(::type)); \
  static_assert(alignof(ours::type) == alignof(::type))

template <class T>
constexpr bool SignedField() {
  if constexpr (std::is_enum_v<T>)
    return std::is_signed_v<std::underlying_type_t<T>>;
  else
    return std::is_signed_v<T>;
}

SAME_STRUCT(DLDevice);
SAME_FIELD(DLDevice, device_type);
SAME_FIELD(DLDevice, device_id);
SAME_STRUCT(DLDataType);
SAME_FIELD(DLDataType, code);
SAME_FIELD(DLDataType, bits);
SAME_FIELD(DLDataType, lanes);
SAME_STRUCT(DLTensor);
SAME_FIELD(DLTensor, data);
SAME_FIELD(DLTensor, device);
SAME_FIELD(DLTensor, ndim);
SAME_FIELD(DLTensor, dtype);
SAME_FIELD(DLTensor, shape);
SAME_FIELD(DLTensor, strides);
SAME_FIELD(DLTensor, byte_offset);
SAME_STRUCT(DLManagedTensor);
SAME_FIELD(DLManagedTensor, dl_tensor);
SAME_FIELD(DLManagedTensor, manager_ctx);
SAME_FIELD(DLManagedTensor, deleter);
SAME_STRUCT(DLPackVersion);
SAME_FIELD(DLPackVersion, major);
SAME_FIELD(DLPackVersion, minor);
SAME_STRUCT(DLManagedTensorVersioned);
SAME_FIELD(DLManagedTensorVersioned, version);
SAME_FIELD(DLManagedTensorVersioned, manager_ctx);
SAME_FIELD(DLManagedTensorVersioned, deleter);
SAME_FIELD(DLManagedTensorVersioned, flags);
SAME_FIELD(DLManagedTensorVersioned, dl_tensor);
static_assert(ours::kMajorVersion == DLPACK_MAJOR_VERSION);
static_assert(ours::kFlagReadOnly == DLPACK_FLAG_BITMASK_READ_ONLY);

// A tensor of another library: with or without strides, with an offset, and with a deleter that
// counts its calls.
template <class Managed>
struct Foreign {
  explicit Foreign(std::vector<int64_t> s = {2, 3}, std::vector<int64_t> t = {})
      : shape(std::move(s)), strides(std::move(t)) {
    for (int i = 0; i < 12; ++i) values[i] = static_cast<float>(i);
    auto& dl = managed.dl_tensor;
    dl.data = values;
    dl.device.device_type = kDLCPU;
    dl.ndim = static_cast<int32_t>(shape.size());
    dl.dtype = {kDLFloat, 32, 1};
    dl.shape = shape.data();
    dl.strides = strides.empty() ? nullptr : strides.data();
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    if constexpr (std::is_same_v<Managed, ::DLManagedTensorVersioned>)
      managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  }
  Foreign(const Foreign&) = delete;

  std::vector<int64_t> shape, strides;
  float values[12];
  Managed managed{};
  int deleted = 0;
};

template <class Managed>
struct Exporter;
template <>
struct Exporter<::DLManagedTensor> {
  static auto* Export(const Tensor& tensor) { return ToDLPack<::DLManagedTensor>(tensor); }
};
template <>
struct Exporter<::DLManagedTensorVersioned> {
  static auto* Export(const Tensor& tensor) {
    return ToDLPackVersioned<::DLManagedTensorVersioned>(tensor);
  }
};

TEST_CASE_TEMPLATE("an export is the tensor's memory, alive until its deleter is called", Managed,
                   ::DLManagedTensor, ::DLManagedTensorVersioned) {
  TestAllocator allocator;
  Managed* managed = nullptr;
  const void* data = nullptr;
  {
    const Tensor tensor = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
    data = tensor.raw_data();
    managed = Exporter<Managed>::Export(tensor);
  }
  const ::DLTensor& dl = managed->dl_tensor;
  CHECK(dl.data == data);
  CHECK(dl.byte_offset == 0);
  CHECK(dl.device.device_type == kDLCPU);
  CHECK(dl.device.device_id == 0);
  CHECK(dl.dtype.code == kDLFloat);
  CHECK(dl.dtype.bits == 32);
  CHECK(dl.dtype.lanes == 1);
  REQUIRE(dl.ndim == 2);
  CHECK(dl.shape[0] == 2);
  CHECK(dl.shape[1] == 3);
  REQUIRE(dl.strides != nullptr);
  CHECK(dl.strides[0] == 3);
  CHECK(dl.strides[1] == 1);
  CHECK(static_cast<const float*>(dl.data)[5] == 6);
  CHECK(allocator.live_bytes() == 24);
  managed->deleter(managed);
  CHECK(allocator.live_bytes() == 0);
}

TEST_CASE("a versioned export has its version and no flags") {
  auto* managed = ToDLPackVersioned(Tensor::Scalar(1.f));
  CHECK(managed->version.major == 1);
  CHECK(managed->version.minor == ours::kMinorVersion);
  CHECK(managed->flags == 0);
  managed->deleter(managed);
}

TEST_CASE("strides, slices and streams of the CPU are exported as they lie in memory") {
  Tensor tensor = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  tensor.SetDevice({DeviceType::kCPUStream, 3});
  const Tensor columns = tensor.Slice(1, 1, 3).Permute({1, 0});
  auto* managed = ToDLPack(columns);
  CHECK(managed->dl_tensor.data == tensor.data<float>() + 1);
  CHECK(managed->dl_tensor.strides[0] == 1);
  CHECK(managed->dl_tensor.strides[1] == 3);
  CHECK(managed->dl_tensor.device.device_type == kDLCPU);
  CHECK(managed->dl_tensor.device.device_id == 0);
  const Tensor back = FromDLPack(managed);
  CHECK(back.ToVector<float>() == Floats{2, 5, 3, 6});
  CHECK(back.device() == Device{});
}

TEST_CASE_TEMPLATE("an import is the other library's memory; its deleter is called once", Managed,
                   ::DLManagedTensor, ::DLManagedTensorVersioned) {
  Foreign<Managed> foreign;
  {
    Tensor tensor = FromDLPack(&foreign.managed);
    CHECK(tensor.shape() == Shape{2, 3});
    CHECK(tensor.dtype() == DType::kFloat32);
    CHECK(tensor.device() == Device{});
    CHECK(tensor.raw_data() == foreign.values);
    CHECK(tensor.ToVector<float>() == Floats{0, 1, 2, 3, 4, 5});
    const Tensor slice = tensor.Slice(0, 1, 2);
    tensor.mutable_data<float>()[3] = 9;
    tensor = Tensor();
    CHECK(foreign.deleted == 0);
    CHECK(slice.ToVector<float>() == Floats{9, 4, 5});
  }
  CHECK(foreign.deleted == 1);
}

TEST_CASE("an import honours strides and byte offset, and never grows over gaps") {
  Foreign<::DLManagedTensor> foreign({2, 2}, {4, 1});
  foreign.managed.dl_tensor.byte_offset = 8;
  {
    Tensor tensor = FromDLPack(&foreign.managed);
    CHECK(tensor.raw_data() == foreign.values + 2);
    CHECK(tensor.ToVector<float>() == Floats{2, 3, 6, 7});
    CHECK_FALSE(tensor.is_dense());
    tensor.Resize({4});
    CHECK(tensor.raw_data() != foreign.values + 2);
    CHECK(foreign.deleted == 1);
  }
  CHECK(foreign.deleted == 1);
}

TEST_CASE("strides of extents of 1 are whatever the other library left there") {
  Foreign<::DLManagedTensor> dense({1, 3}, {-77, 1}), strided({1, 2, 2}, {-77, 4, 1});
  CHECK(FromDLPack(&dense.managed).is_dense());
  const Tensor tensor = FromDLPack(&strided.managed);
  CHECK(tensor.ToVector<float>() == Floats{0, 1, 4, 5});
}

TEST_CASE("broadcast strides of 0 are imported") {
  Foreign<::DLManagedTensor> foreign({2, 3}, {0, 1});
  CHECK(FromDLPack(&foreign.managed).ToVector<float>() == Floats{0, 1, 2, 0, 1, 2});
}

TEST_CASE("scalars and empty tensors go both ways") {
  Foreign<::DLManagedTensor> scalar(std::vector<int64_t>{});
  scalar.managed.dl_tensor.shape = nullptr;
  CHECK(FromDLPack(&scalar.managed).shape() == Shape{});
  CHECK(scalar.deleted == 1);
  Foreign<::DLManagedTensor> empty({2, 0}, {5, 5});
  empty.managed.dl_tensor.data = nullptr;
  empty.managed.dl_tensor.byte_offset = 16;
  CHECK(FromDLPack(&empty.managed).shape() == Shape{2, 0});
  CHECK(empty.deleted == 1);

  const Tensor one = FromDLPack(ToDLPack(Tensor::Scalar(4.f)));
  CHECK(one.rank() == 0);
  CHECK(one.data<float>()[0] == 4);
  const Tensor none = FromDLPack(ToDLPackVersioned(Tensor({0, 3}, DType::kInt8)));
  CHECK(none.shape() == Shape{0, 3});
  CHECK(none.dtype() == DType::kInt8);
}

TEST_CASE("every dtype goes both ways under DLPack's own code") {
  struct Row {
    DType dtype;
    int code, bits;
  };
  const Row rows[] = {{DType::kBool, kDLBool, 8},
                      {DType::kInt8, kDLInt, 8},
                      {DType::kInt16, kDLInt, 16},
                      {DType::kInt32, kDLInt, 32},
                      {DType::kInt64, kDLInt, 64},
                      {DType::kUInt8, kDLUInt, 8},
                      {DType::kUInt16, kDLUInt, 16},
                      {DType::kUInt32, kDLUInt, 32},
                      {DType::kUInt64, kDLUInt, 64},
                      {DType::kFloat16, kDLFloat, 16},
                      {DType::kBFloat16, kDLBfloat, 16},
                      {DType::kFloat32, kDLFloat, 32},
                      {DType::kFloat64, kDLFloat, 64},
                      {DType::kComplex64, kDLComplex, 64},
                      {DType::kComplex128, kDLComplex, 128},
                      {DType::kFloat8E4M3FN, kDLFloat8_e4m3fn, 8},
                      {DType::kFloat8E4M3FNUZ, kDLFloat8_e4m3fnuz, 8},
                      {DType::kFloat8E5M2, kDLFloat8_e5m2, 8},
                      {DType::kFloat8E5M2FNUZ, kDLFloat8_e5m2fnuz, 8},
                      {DType::kFloat8E8M0, kDLFloat8_e8m0fnu, 8}};
  static_assert(std::size(rows) == opkit::kNumPlainDTypes - 1 + 5);
  for (const Row& row : rows) {
    CAPTURE(ToString(row.dtype));
    const Tensor tensor({3}, row.dtype);
    auto* managed = ToDLPack(tensor);
    CHECK(managed->dl_tensor.dtype.code == row.code);
    CHECK(managed->dl_tensor.dtype.bits == row.bits);
    CHECK(managed->dl_tensor.dtype.lanes == 1);
    const Tensor back = FromDLPack(managed);
    CHECK(back.dtype() == row.dtype);
    CHECK(back.raw_data() == tensor.raw_data());
  }
  const Tensor halves = Tensor::From<opkit::float16>({2}, {1.5f, -2.f});
  CHECK(FromDLPack(ToDLPack(halves)).data<opkit::float16>()[1] == -2.f);
  const Tensor flags = Tensor::From<bool>({2}, {true, false});
  CHECK(FromDLPack(ToDLPack(flags)).ToVector<bool>() == std::vector<bool>{true, false});
  using Complex = std::complex<float>;
  const Tensor numbers = Tensor::From<Complex>({1}, {{1, -2}});
  CHECK(FromDLPack(ToDLPack(numbers)).data<Complex>()[0] == Complex(1, -2));
}

TEST_CASE("a packed tensor is not exported") {
  const auto error = ErrorOf([] { ToDLPack(Tensor({3}, DType::kInt4)); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "cast it to a type of 8 bits first"));
}

TEST_CASE("other devices keep their type and index") {
  float fake[6] = {};
  Foreign<::DLManagedTensor> foreign;
  foreign.managed.dl_tensor.device = {kDLCUDA, 1};
  CHECK(FromDLPack(&foreign.managed).device() == Device{DeviceType::kCUDA, 1});
  auto* managed =
      ToDLPack<::DLManagedTensor>(Tensor::FromExternal(fake, {6}, {DeviceType::kCUDA, 1}));
  CHECK(managed->dl_tensor.device.device_type == kDLCUDA);
  CHECK(managed->dl_tensor.device.device_id == 1);
  managed->deleter(managed);
}

// An import that is refused: says why, and leaves the tensor to the caller.
template <class Managed, class F>
void CheckRefused(ErrorCode code, const char* text, F&& spoil, std::vector<int64_t> shape = {2, 3},
                  std::vector<int64_t> strides = {}) {
  Foreign<Managed> foreign(std::move(shape), std::move(strides));
  spoil(foreign.managed);
  const auto error = ErrorOf([&] { FromDLPack(&foreign.managed); });
  CAPTURE(error.message());
  CHECK(error.code() == code);
  CHECK(Contains(error.message(), text));
  CHECK(foreign.deleted == 0);
}

TEST_CASE_TEMPLATE("a tensor that cannot be imported stays the caller's", Managed,
                   ::DLManagedTensor, ::DLManagedTensorVersioned) {
  auto nothing = [](Managed&) {};
  CheckRefused<Managed>(ErrorCode::kUnsupported,
                        "DLPack type {code 2, bits 32, lanes 4} has no DType",
                        [](Managed& m) { m.dl_tensor.dtype.lanes = 4; });
  CheckRefused<Managed>(ErrorCode::kUnsupported,
                        "DLPack type {code 7, bits 8, lanes 1} has no DType", [](Managed& m) {
                          m.dl_tensor.dtype = {7, 8, 1};
                        });
  CheckRefused<Managed>(ErrorCode::kUnsupported, "{code 1, bits 4, lanes 1}", [](Managed& m) {
    m.dl_tensor.dtype = {kDLUInt, 4, 1};
  });
  CheckRefused<Managed>(ErrorCode::kInvalidArgument, "DLPack tensor has ndim -1",
                        [](Managed& m) { m.dl_tensor.ndim = -1; });
  CheckRefused<Managed>(ErrorCode::kInvalidArgument, "DLPack tensor has ndim 2 and no shape",
                        [](Managed& m) { m.dl_tensor.shape = nullptr; });
  CheckRefused<Managed>(ErrorCode::kInvalidArgument, "DLPack tensor has no data",
                        [](Managed& m) { m.dl_tensor.data = nullptr; });
  CheckRefused<Managed>(ErrorCode::kInvalidArgument, "negative extent -3", nothing, {2, -3});
  CheckRefused<Managed>(ErrorCode::kOutOfRange, "more elements than a 64-bit count", nothing,
                        {INT64_MAX, 2});
  CheckRefused<Managed>(ErrorCode::kOutOfRange, "more bytes than a 64-bit count", nothing,
                        {INT64_MAX});
  CheckRefused<Managed>(ErrorCode::kUnsupported, "DLPack stride -3 of axis 0 is negative", nothing,
                        {2, 3}, {-3, 1});
  CheckRefused<Managed>(ErrorCode::kUnsupported, "is negative or too large", nothing, {3, 3},
                        {INT64_MAX, 1});
  CheckRefused<Managed>(ErrorCode::kOutOfRange, "reach past a 64-bit byte count", nothing, {2, 3},
                        {INT64_MAX - 4, 1});
  CheckRefused<Managed>(ErrorCode::kInvalidArgument,
                        "begins at an address that is no multiple of 4 (byte_offset 3)",
                        [](Managed& m) { m.dl_tensor.byte_offset = 3; });
  CheckRefused<Managed>(ErrorCode::kOutOfRange, "reaches past the end of memory",
                        [](Managed& m) { m.dl_tensor.byte_offset = UINT64_MAX - 7; });
}

TEST_CASE("a read-only tensor is refused unless requested") {
  Foreign<::DLManagedTensorVersioned> foreign;
  foreign.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  const auto error = ErrorOf([&] { FromDLPack(&foreign.managed); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "is read-only: copy it, or pass DLPackReadOnly::kAccepted"));
  CHECK(foreign.deleted == 0);
  CHECK(FromDLPack(&foreign.managed, opkit::DLPackReadOnly::kAccepted).ToVector<float>() ==
        Floats{0, 1, 2, 3, 4, 5});
  CHECK(foreign.deleted == 1);
}

TEST_CASE("another major version is refused, a newer minor one is not") {
  CheckRefused<::DLManagedTensorVersioned>(ErrorCode::kUnsupported,
                                           "DLPack major version 2 is not the supported 1",
                                           [](::DLManagedTensorVersioned& m) {
                                             m.version = {2, 0};
                                           });
  Foreign<::DLManagedTensorVersioned> newer;
  newer.managed.version.minor = 99;
  newer.managed.flags = 2;  // "was copied"
  CHECK(FromDLPack(&newer.managed).numel() == 6);
}

TEST_CASE("a tensor without a deleter is imported too, a null pointer is an error") {
  Foreign<::DLManagedTensor> foreign;
  foreign.managed.deleter = nullptr;
  CHECK(FromDLPack(&foreign.managed).numel() == 6);
  CHECK(ErrorOf([] { FromDLPack(static_cast<::DLManagedTensor*>(nullptr)); }).message() ==
        "FromDLPack was given a null pointer");
}

TEST_CASE("a tensor that DLPack cannot describe is not exported") {
  Tensor nothing;
  CHECK(ErrorOf([&] { ToDLPack(nothing); }).code() == ErrorCode::kUninitialized);
  const Tensor blocked = Tensor::FromLayout(opkit::AllocateStorage({}, 64), {2, 2}, DType::kFloat32,
                                            opkit::Layout{903, {}});
  const auto error = ErrorOf([&] { ToDLPackVersioned(blocked); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(error.message() ==
        "DLPack has no layout 'layout 903'; convert the tensor to the standard layout first");
}

}  // namespace
}  // namespace dlpack_test
