#include "opkit/core/tensor.hpp"

#include <doctest/doctest.h>

#include <complex>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/test_allocator.hpp"

// An absurd size is asked for on purpose; the sanitizers' allocators end the program at that.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace {

using opkit::Device;
using opkit::DeviceType;
using opkit::Dims;
using opkit::DType;
using opkit::Error;
using opkit::ErrorCode;
using opkit::Layout;
using opkit::Shape;
using opkit::Tensor;

constexpr DType kF32 = DType::kFloat32;
constexpr Device kCUDA{DeviceType::kCUDA, 0};

Ints Strides(const Tensor& tensor) {
  const Dims strides = tensor.strides();
  return {strides.begin(), strides.end()};
}
Dims MakeDims(const Ints& values) { return Dims(values); }
// 0, 1, 2, … in the given shape.
Tensor Iota(const Shape& shape) {
  Floats values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0.f);
  return Tensor::From<float>(shape, values);
}

// Everything a tensor shows to the outside, to prove that a failure changed nothing.
struct Snapshot {
  explicit Snapshot(const Tensor& t)
      : shape(t.shape()),
        dtype(t.dtype()),
        device(t.device()),
        layout(t.layout()),
        strides(t.strides()),
        storage(t.storage().get()),
        data(t.raw_data()),
        offset(t.byte_offset()),
        capacity(t.capacity()),
        uses(t.storage().use_count()) {
    if (t.initialized() && t.dtype() == kF32 && t.layout().is_standard() &&
        IsHostAccessible(t.device().type))
      values = t.ToVector<float>();
  }
  friend bool operator==(const Snapshot&, const Snapshot&) = default;

  Shape shape;
  DType dtype;
  Device device;
  Layout layout;
  Dims strides;
  const void *storage, *data;
  int64_t offset, capacity, uses;
  Floats values;
};
// The Error that `call` throws, having left the tensor as it was.
template <class F>
Error FailsUnchanged(const Tensor& tensor, F&& call) {
  const Snapshot before(tensor);
  const Error error = ErrorOf(call);
  CHECK(Snapshot(tensor) == before);
  return error;
}

TEST_CASE("a default tensor is empty, on the CPU and not initialized") {
  const Tensor tensor;
  CHECK(tensor.shape() == Shape{0});
  CHECK(tensor.numel() == 0);
  CHECK(tensor.dtype() == DType::kUndefined);
  CHECK(tensor.device() == Device{});
  CHECK(tensor.raw_data() == nullptr);
  CHECK_FALSE(tensor.initialized());
  CHECK(ToString(tensor) == "undefined[0] on cpu (uninitialized)");
}

TEST_CASE("a tensor owns memory of its shape and dtype") {
  TestAllocator allocator;
  {
    Tensor tensor({2, 3}, kF32);
    CHECK(tensor.rank() == 2);
    CHECK(tensor.dim(-1) == 3);
    CHECK(tensor.numel() == 6);
    CHECK(tensor.nbytes() == 24);
    CHECK(tensor.capacity() == 24);
    CHECK(Strides(tensor) == Ints{3, 1});
    CHECK(tensor.is_dense());
    CHECK(tensor.initialized());
    CHECK(reinterpret_cast<uintptr_t>(tensor.raw_data()) % 64 == 0);
    CHECK(ToString(tensor) == "float32[2, 3] on cpu");
    CHECK(allocator.live_bytes() == 24);
    const Tensor copy = tensor;
    CHECK(copy.raw_data() == tensor.raw_data());
    CHECK(allocator.allocations() == 1);
  }
  CHECK(allocator.live_bytes() == 0);
}

TEST_CASE("an empty tensor takes no memory and can be read") {
  TestAllocator allocator;
  const Tensor tensor({4, 0}, kF32);
  CHECK(tensor.initialized());
  CHECK(tensor.ToVector<float>().empty());
  CHECK(tensor.data<float>() == nullptr);
  CHECK(tensor.Contiguous().shape() == Shape{4, 0});
  CHECK(allocator.allocations() == 0);
}

TEST_CASE("a tensor is made of values, a scalar, or memory of the caller's") {
  CHECK(Tensor::From<float>({2, 2}, {1, 2, 3, 4}).ToVector<float>() == Floats{1, 2, 3, 4});
  CHECK(Tensor::From<int8_t>({2}, std::vector<int8_t>{5, -6}).ToVector<int8_t>() ==
        std::vector<int8_t>{5, -6});
  CHECK(Tensor::From<bool>({3}, {true, false, true}).ToVector<bool>() ==
        std::vector<bool>{true, false, true});
  const Tensor scalar = Tensor::Scalar(2.5);
  CHECK(scalar.rank() == 0);
  CHECK(scalar.data<double>()[0] == 2.5);

  int32_t mine[] = {1, 2, 3};
  {
    Tensor outside = Tensor::FromExternal(mine, {3});
    CHECK(outside.data<int32_t>() == mine);
    outside.mutable_data<int32_t>()[1] = 9;
    outside.Resize({2});
    CHECK(outside.data<int32_t>() == mine);
    outside.Resize({4});
    CHECK(outside.data<int32_t>() != mine);
  }
  CHECK(mine[1] == 9);
  CHECK(ErrorOf([] { Tensor::FromExternal<float>(nullptr, {4}); }).message() ==
        "expected memory for [4] of float32, found a null pointer");
  CHECK(Tensor::FromExternal<float>(nullptr, {0}).numel() == 0);

  // Bytes are not used for elements that would lie askew in them.
  const Tensor bytes({16}, DType::kInt8);
  Tensor odd = bytes.Slice(0, 1, 9);
  odd.Resize({2}, DType::kFloat32);
  CHECK_FALSE(odd.SharesMemoryWith(bytes));
  Tensor even = bytes.Slice(0, 8, 16);
  even.Resize({2}, DType::kFloat32);
  CHECK(even.SharesMemoryWith(bytes));

  const auto error = ErrorOf([] { Tensor::From<float>({2, 3}, {1, 2}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() == "shape [2, 3] holds 6 elements, but 2 values were given");
}

TEST_CASE("std::complex is an element") {
  using Complex = std::complex<float>;
  Tensor tensor = Tensor::From<Complex>({2}, {{1, 2}, {3, -4}});
  CHECK(tensor.dtype() == DType::kComplex64);
  CHECK(tensor.nbytes() == 16);
  tensor.mutable_data<Complex>()[0] *= Complex(0, 1);
  CHECK(tensor.ToVector<Complex>() == std::vector<Complex>{{-2, 1}, {3, -4}});
  CHECK(Tensor::Scalar(std::complex<double>(1, 1)).dtype() == DType::kComplex128);
}

TEST_CASE("half types are elements") {
  const Tensor tensor = Tensor::From<opkit::float16>({2}, {1.5f, -2.f});
  CHECK(tensor.nbytes() == 4);
  CHECK(tensor.data<opkit::float16>()[1] == -2.f);
  CHECK(Tensor::Scalar(opkit::bfloat16(3.f)).dtype() == DType::kBFloat16);
}

TEST_CASE("mutable_data gives a dtype to a tensor that has none, and never changes another") {
  Tensor tensor;
  tensor.Resize({2, 2});
  CHECK_FALSE(tensor.initialized());
  tensor.mutable_data<float>()[3] = 1;
  CHECK(tensor.dtype() == kF32);
  CHECK(tensor.shape() == Shape{2, 2});
  const auto error = FailsUnchanged(tensor, [&] { tensor.mutable_data<int>(); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(error.subject() == &tensor);
  CHECK(error.message() ==
        "tensor float32[2, 2] on cpu: accessed as int32 but holds float32; to write another "
        "dtype call Resize(shape, dtype) first");
}

TEST_CASE("reading as another type is an error that names both") {
  const Tensor tensor({3}, DType::kInt64);
  const auto error = FailsUnchanged(tensor, [&] { tensor.data<float>(); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(error.message() == "tensor int64[3] on cpu: accessed as float32 but holds int64");
  CHECK(ErrorOf([&] { tensor.ToVector<int32_t>(); }).message() ==
        "tensor int64[3] on cpu: accessed as int32 but holds int64");
}

TEST_CASE("reading before the first write is an error for every reader") {
  Tensor tensor;
  tensor.Resize({2, 3});
  auto check = [&](auto&& read) {
    const auto error = FailsUnchanged(tensor, read);
    CHECK(error.code() == ErrorCode::kUninitialized);
    CHECK(error.subject() == &tensor);
    CHECK(error.message() ==
          "tensor undefined[2, 3] on cpu (uninitialized): is read before anything was written to "
          "it");
  };
  check([&] { tensor.data<float>(); });
  check([&] { tensor.ToVector<float>(); });
  check([&] { tensor.Contiguous(); });
  check([&] { tensor.View({6}); });
  check([&] { tensor.Slice(0, 0, 1); });
  check([&] { tensor.Permute({1, 0}); });
  Tensor target = Iota({2, 3});
  const Snapshot before(target);
  check([&] { target.CopyFrom(tensor); });
  check([&] { target.ShareData(tensor); });
  CHECK(Snapshot(target) == before);
}

TEST_CASE("shapes that overflow or are negative leave a tensor as it was") {
  Tensor tensor = Iota({2, 3});
  const auto negative = FailsUnchanged(tensor, [&] { tensor.Resize({2, -1}); });
  CHECK(negative.code() == ErrorCode::kInvalidArgument);
  CHECK(negative.message() == "shape [2, -1] has the negative extent -1 at axis 1");
  const auto count = FailsUnchanged(tensor, [&] {
    tensor.Resize({INT64_C(1) << 40, INT64_C(1) << 40});
  });
  CHECK(count.code() == ErrorCode::kOutOfRange);
  CHECK(Contains(count.message(), "more elements than a 64-bit count can hold"));

  const auto bytes = FailsUnchanged(tensor, [&] { tensor.Resize({INT64_C(1) << 61}); });
  CHECK(bytes.code() == ErrorCode::kOutOfRange);
  CHECK(bytes.subject() == &tensor);
  CHECK(bytes.message() ==
        "tensor float32[2, 3] on cpu: cannot become float32[2305843009213693952]: a tensor "
        "float32[2305843009213693952] has more bytes than a 64-bit count can hold");
  CHECK(FailsUnchanged(tensor, [&] { tensor.Resize({INT64_MAX}, DType::kComplex128); }).code() ==
        ErrorCode::kOutOfRange);
  CHECK(FailsUnchanged(tensor, [&] { tensor.ReserveSpace(INT64_C(1) << 60); }).code() ==
        ErrorCode::kOutOfRange);
  CHECK(FailsUnchanged(tensor, [&] { tensor.ReserveSpace(INT64_MAX); }).code() ==
        ErrorCode::kOutOfRange);
  CHECK(FailsUnchanged(tensor, [&] { tensor.Resize({1}, DType::kUndefined); }).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([] { Tensor({INT64_C(1) << 62}, kF32); }).code() == ErrorCode::kOutOfRange);
  Tensor without_dtype;
  without_dtype.Resize({INT64_C(1) << 62});
  CHECK(FailsUnchanged(without_dtype, [&] { without_dtype.mutable_data<double>(); }).code() ==
        ErrorCode::kOutOfRange);
}

TEST_CASE("out of memory leaves a tensor as it was") {
  TestAllocator allocator;
  Tensor tensor = Iota({2, 3});
  const Tensor shared = tensor;
  const Tensor big_source = Iota({10});
  allocator.set_limit(30);
  auto check = [&](const char* becomes, auto&& call) {
    const auto error = FailsUnchanged(tensor, call);
    CHECK(error.code() == ErrorCode::kOutOfMemory);
    CHECK(error.subject() == &tensor);
    CHECK(Contains(error.message(), "tensor float32[2, 3] on cpu: cannot become "));
    CHECK(Contains(error.message(), becomes));
    CHECK(Contains(error.message(), ": out of memory on test allocator: "));
    CHECK(Contains(error.message(), " bytes were asked for while 64 bytes are in use"));
  };
  check("float32[100]", [&] { tensor.Resize({100}); });
  check("float64[2, 2]", [&] { tensor.Resize({2, 2}, DType::kFloat64); });
  check("float32[4, 3]", [&] { tensor.ReserveSpace(4); });
  check("float32[10]", [&] { tensor.CopyFrom(big_source); });
  CHECK(ErrorOf([&] { Tensor({8}, kF32); }).code() == ErrorCode::kOutOfMemory);
  CHECK(shared.ToVector<float>() == Floats{0, 1, 2, 3, 4, 5});
  CHECK(allocator.live_bytes() == 64);
  allocator.set_limit(1000);
  tensor.Resize({100});  // and it works again
  CHECK(tensor.numel() == 100);
}

TEST_CASE("a size that no machine has is out of memory, not a crash") {
  Tensor tensor = Iota({2, 3});
  const auto error =
      FailsUnchanged(tensor, [&] { tensor.Resize({INT64_C(1) << 58}, DType::kUInt8); });
  CHECK(error.code() == ErrorCode::kOutOfMemory);
  CHECK(Contains(error.message(),
                 "out of memory on cpu: 288230376151711744 bytes were asked for while "));
}

TEST_CASE("a number that is no dtype is refused, and read as nothing") {
  constexpr auto kNone = static_cast<DType>(200);
  CHECK_FALSE(IsDType(kNone));
  CHECK(ItemSize(kNone) == 0);
  CHECK(std::string(ToString(kNone)) == "not a dtype");
  CHECK(ErrorOf([&] { Tensor({2}, kNone); }).code() == ErrorCode::kInvalidArgument);
  Tensor tensor = Tensor::From<float>({2}, {1, 2});
  CHECK(ErrorOf([&] { tensor.Resize({0}, kNone); }).code() == ErrorCode::kInvalidArgument);
  CHECK(tensor.ToVector<float>() == std::vector<float>{1, 2});
  CHECK(ErrorOf([&] { Tensor(tensor.storage(), 0, {2}, kNone, {2}); }).code() ==
        ErrorCode::kInvalidArgument);
}

TEST_CASE("a device without an allocator leaves the tensor as it was") {
  Tensor tensor(Device{DeviceType::kVulkan, 1});
  tensor.Resize({2});
  const auto error = FailsUnchanged(tensor, [&] { tensor.mutable_data<float>(); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "no allocator for device vulkan"));
}

TEST_CASE("Resize keeps memory that is large enough: shrinking and growing back costs nothing") {
  TestAllocator allocator;
  Tensor tensor({4, 4}, kF32);
  const void* data = tensor.raw_data();
  for (const Shape& shape : {Shape{2, 2}, Shape{0}, Shape{}, Shape{16}, Shape{2, 2, 4}}) {
    tensor.Resize(shape);
    CHECK(tensor.raw_data() == data);
    CHECK(tensor.capacity() == 64);
    CHECK(tensor.shape() == shape);
  }
  tensor.Resize({8}, DType::kFloat64);  // another dtype of as many bytes
  CHECK(tensor.raw_data() == data);
  CHECK(tensor.dtype() == DType::kFloat64);
  CHECK(allocator.allocations() == 1);
  tensor.Resize({9});
  CHECK(tensor.capacity() == 72);
  CHECK(allocator.allocations() == 2);
  CHECK(allocator.live_bytes() == 72);
}

TEST_CASE("when one of several tensors grows, the others keep their memory") {
  Tensor tensor = Iota({4});
  const Tensor other = tensor;
  const Tensor slice = tensor.Slice(0, 1, 3);
  tensor.Resize({5});
  CHECK(tensor.storage() != other.storage());
  CHECK(other.ToVector<float>() == Floats{0, 1, 2, 3});
  CHECK(slice.ToVector<float>() == Floats{1, 2});
}

TEST_CASE("Reset drops memory and dtype and keeps the device") {
  TestAllocator allocator;
  Tensor tensor({4}, kF32, {DeviceType::kCPUStream, 2});
  tensor.Reset();
  CHECK(allocator.live_bytes() == 0);
  CHECK(tensor.dtype() == DType::kUndefined);
  CHECK(tensor.shape() == Shape{0});
  CHECK(tensor.device() == Device{DeviceType::kCPUStream, 2});
}

TEST_CASE("ReleaseMemory keeps dtype and shape, and to read the elements is an Error") {
  TestAllocator allocator;
  Tensor tensor = Iota({2, 3});
  const Tensor shared = tensor;
  tensor = tensor.Permute({1, 0});
  tensor.ReleaseMemory();
  CHECK(ToString(tensor) == "float32[3, 2] on cpu (uninitialized)");
  CHECK(ErrorOf([&] { tensor.data<float>(); }).code() == ErrorCode::kUninitialized);
  CHECK(ErrorOf([&] { tensor.mutable_data<float>(); }).code() == ErrorCode::kUninitialized);
  CHECK(shared.data<float>()[5] == 5);
  tensor.Resize({3, 2});
  CHECK(tensor.initialized());
  CHECK_FALSE(tensor.SharesMemoryWith(shared));
  tensor.ReleaseMemory();
  CHECK(allocator.live_bytes() == shared.nbytes());
}

TEST_CASE("ReserveSpace keeps shape and contents and makes growing free") {
  TestAllocator allocator;
  Tensor tensor = Iota({2, 3});
  const Tensor shared = tensor;
  tensor.ReserveSpace(5);
  CHECK(tensor.shape() == Shape{2, 3});
  CHECK(tensor.ToVector<float>() == Floats{0, 1, 2, 3, 4, 5});
  CHECK(tensor.capacity() == 60);
  CHECK(shared.raw_data() != tensor.raw_data());
  CHECK(shared.ToVector<float>() == Floats{0, 1, 2, 3, 4, 5});
  const void* data = tensor.raw_data();
  tensor.Resize({5, 3});
  CHECK(tensor.raw_data() == data);
  CHECK(tensor.data<float>()[5] == 5);
  tensor.ReserveSpace(3);  // there is more already
  CHECK(tensor.raw_data() == data);
  CHECK(allocator.allocations() == 2);
}

TEST_CASE("ReserveSpace gathers strided contents, and takes an empty tensor") {
  Tensor transposed = Iota({2, 3}).Permute({1, 0});
  transposed.ReserveSpace(4);
  CHECK(transposed.is_dense());
  CHECK(transposed.ToVector<float>() == Floats{0, 3, 1, 4, 2, 5});
  CHECK(transposed.capacity() == 32);

  Tensor empty({0, 3}, kF32);
  empty.ReserveSpace(2);
  CHECK(empty.shape() == Shape{0, 3});
  CHECK(empty.capacity() == 24);
  Tensor adopted(opkit::AdoptStorage({}, nullptr, 0), 0, {0, 3}, kF32);
  adopted.ReserveSpace(2);
  CHECK(adopted.capacity() == 24);
}

TEST_CASE("ReserveSpace needs a dtype and an outer dimension") {
  Tensor scalar = Tensor::Scalar(1.f), none;
  none.Resize({2});
  for (Tensor* tensor : {&scalar, &none}) {
    const auto error = FailsUnchanged(*tensor, [&] { tensor->ReserveSpace(4); });
    CHECK(error.code() == ErrorCode::kFailedPrecondition);
    CHECK(Contains(error.message(), "ReserveSpace needs a dtype and an outer dimension"));
  }
}

TEST_CASE("ShareData takes memory and dtype and keeps the shape") {
  const Tensor source = Iota({2, 3});
  Tensor tensor({3, 2}, DType::kInt8);
  tensor.ShareData(source);
  CHECK(tensor.shape() == Shape{3, 2});
  CHECK(tensor.dtype() == kF32);
  CHECK(tensor.raw_data() == source.raw_data());
  CHECK(tensor.storage().use_count() == 2);
  tensor.mutable_data<float>()[0] = 7;
  CHECK(source.data<float>()[0] == 7);
}

TEST_CASE("ShareData of another element count or of strides is an error") {
  const Tensor source = Iota({2, 3});
  Tensor tensor = Iota({5});
  const auto count = FailsUnchanged(tensor, [&] { tensor.ShareData(source); });
  CHECK(count.code() == ErrorCode::kInvalidArgument);
  CHECK(count.message() ==
        "tensor float32[5] on cpu: ShareData needs equal element counts, but the source is "
        "float32[2, 3] on cpu");
  Tensor six = Iota({6});
  const auto strided = FailsUnchanged(six, [&] { six.ShareData(source.Permute({1, 0})); });
  CHECK(strided.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(strided.message(), "ShareData needs a dense source"));
}

TEST_CASE("CopyFrom copies elements, keeps the device and reuses memory") {
  const Tensor source = Iota({2, 3});
  Tensor tensor({10}, DType::kInt32, {DeviceType::kCPUStream, 1});
  const void* data = tensor.raw_data();
  tensor.CopyFrom(source);
  CHECK(tensor.raw_data() == data);
  CHECK(tensor.shape() == Shape{2, 3});
  CHECK(tensor.device() == Device{DeviceType::kCPUStream, 1});
  CHECK(tensor.ToVector<float>() == Floats{0, 1, 2, 3, 4, 5});
  tensor.mutable_data<float>()[0] = 9;
  CHECK(source.data<float>()[0] == 0);
  tensor.CopyFrom(tensor);
  CHECK(tensor.raw_data() == data);
  CHECK(tensor.data<float>()[0] == 9);
}

TEST_CASE("CopyFrom gathers a strided source") {
  const Tensor matrix = Iota({3, 4});
  Tensor tensor;
  tensor.CopyFrom(matrix.Slice(1, 1, 3));
  CHECK(tensor.ToVector<float>() == Floats{1, 2, 5, 6, 9, 10});
  tensor.CopyFrom(matrix.Permute({1, 0}));
  CHECK(tensor.ToVector<float>() == Floats{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  // One value everywhere: stride 0.
  const Tensor repeated(matrix.storage(), 4 * 5, {2, 2}, kF32, MakeDims({0, 0}));
  tensor.CopyFrom(repeated);
  CHECK(tensor.ToVector<float>() == Floats{5, 5, 5, 5});
}

TEST_CASE("CopyFrom of overlapping memory gives the source's values and leaves the source") {
  const Tensor source = Iota({10});
  for (int64_t begin : {0, 1, 3}) {
    for (int64_t end : {4, 7, 10}) {
      CAPTURE(begin);
      CAPTURE(end);
      Tensor tensor = source;
      tensor.Resize({2});  // still reaches ten elements
      const Tensor part = source.Slice(0, begin, end);
      Floats expected;
      for (int64_t i = begin; i < end; ++i) expected.push_back(static_cast<float>(i));
      tensor.CopyFrom(part);
      CHECK(tensor.ToVector<float>() == expected);
      CHECK(part.ToVector<float>() == expected);
    }
  }
  Tensor transposed = Iota({3, 3});
  const Tensor original = transposed;
  transposed.CopyFrom(original.Permute({1, 0}));
  CHECK(transposed.ToVector<float>() == Floats{0, 3, 6, 1, 4, 7, 2, 5, 8});
  CHECK(original.ToVector<float>() == Floats{0, 1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("CopyFrom into a strided slice takes memory of its own") {
  const Tensor matrix = Iota({3, 4});
  Tensor column = matrix.Slice(1, 1, 2);
  column.CopyFrom(Tensor::From<float>({3, 1}, {-1, -2, -3}));
  CHECK(column.ToVector<float>() == Floats{-1, -2, -3});
  CHECK(matrix.ToVector<float>() == Iota({12}).ToVector<float>());
}

TEST_CASE("CopyFrom does not cross to memory that the host does not reach") {
  Tensor host = Iota({2});
  float fake[2] = {};
  const Tensor device = Tensor::FromExternal(fake, {2}, kCUDA);
  const auto error = FailsUnchanged(host, [&] { host.CopyFrom(device); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(error.message() ==
        "tensor float32[2] on cuda: is not reachable from the host; use device/copy.hpp");
  Tensor target(kCUDA);
  CHECK(FailsUnchanged(target, [&] { target.CopyFrom(host); }).code() == ErrorCode::kUnsupported);
  CHECK(ErrorOf([&] { device.ToVector<float>(); }).code() == ErrorCode::kUnsupported);
  CHECK(ErrorOf([&] { device.Contiguous(); }).code() == ErrorCode::kUnsupported);
  CHECK(device.View({1, 2}).raw_data() == fake);  // needs no access
}

TEST_CASE("View gives the same memory another shape; one extent may be -1") {
  const Tensor tensor = Iota({2, 6});
  for (const Tensor& view : {tensor.View({3, 4}), tensor.View({3, -1}), tensor.View({-1, 4})}) {
    CHECK(view.shape() == Shape{3, 4});
    CHECK(view.raw_data() == tensor.raw_data());
    CHECK(Strides(view) == Ints{4, 1});
  }
  CHECK(tensor.View({-1}).shape() == Shape{12});
  CHECK(tensor.View({2, 3, -1, 2}).shape() == Shape{2, 3, 1, 2});
  CHECK(Tensor({2, 0}, kF32).View({4, -1}).shape() == Shape{4, 0});
  CHECK(Tensor::Scalar(1.f).View({1, 1}).shape() == Shape{1, 1});
}

TEST_CASE("View of a shape that does not fit is an error") {
  const Tensor tensor = Iota({2, 6});
  auto check = [&](std::initializer_list<int64_t> dims, const char* text) {
    const auto error = FailsUnchanged(tensor, [&] { tensor.View(dims); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), text));
  };
  check({5, 2}, "tensor float32[2, 6] on cpu: cannot be viewed as shape [5, 2]");
  check({5, -1}, "cannot be viewed as shape [5, -1]");
  check({0, -1}, "cannot be viewed as shape [0, -1]");
  check({-1, -1}, "negative extent -1");
  check({-2, -6}, "negative extent -2");
  check({}, "cannot be viewed as shape []");
  const Tensor empty({2, 0}, kF32);
  CHECK(ErrorOf([&] { empty.View({0, -1}); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { tensor.View({INT64_MAX, INT64_MAX}); }).code() == ErrorCode::kOutOfRange);
  CHECK(Contains(ErrorOf([&] {
                   tensor.Permute({1, 0}).View({12});
                 }).message(),
                 "View needs a dense tensor; call Contiguous() first"));
}

TEST_CASE("Slice shares memory along any axis") {
  const Tensor tensor = Iota({3, 4});
  const Tensor rows = tensor.Slice(0, 1, 3);
  CHECK(rows.is_dense());
  CHECK(rows.byte_offset() == 16);
  CHECK(rows.ToVector<float>() == Floats{4, 5, 6, 7, 8, 9, 10, 11});
  const Tensor columns = tensor.Slice(-1, 2, 4);
  CHECK_FALSE(columns.is_dense());
  CHECK(Strides(columns) == Ints{4, 1});
  CHECK(columns.data<float>()[0] == 2);
  CHECK(columns.ToVector<float>() == Floats{2, 3, 6, 7, 10, 11});
  CHECK(ToString(columns) == "float32[3, 2] on cpu with strides[4, 1]");
  const Tensor both = columns.Slice(0, 1, 2);
  CHECK(both.is_dense());  // one row of it has no gaps
  CHECK(both.ToVector<float>() == Floats{6, 7});
  CHECK(tensor.Slice(0, 3, 3).numel() == 0);
  CHECK(tensor.Permute({1, 0}).Slice(0, 1, 2).ToVector<float>() == Floats{1, 5, 9});
}

TEST_CASE("Slice outside the axis is an error") {
  const Tensor tensor = Iota({3, 4});
  for (auto [begin, end] : {std::pair{-1, 2}, {0, 4}, {2, 1}, {4, 4}}) {
    const auto error = FailsUnchanged(tensor, [&, b = begin, e = end] { tensor.Slice(0, b, e); });
    CHECK(error.code() == ErrorCode::kOutOfRange);
    CHECK(error.message() == opkit::StrCat("tensor float32[3, 4] on cpu: slice [", begin, ", ", end,
                                           ") is outside axis 0"));
  }
  CHECK(ErrorOf([&] { tensor.Slice(2, 0, 1); }).code() == ErrorCode::kOutOfRange);
}

TEST_CASE("a slice never grows over its neighbours") {
  const Tensor matrix = Iota({4, 4});
  const Floats values = matrix.ToVector<float>();
  auto overwrite = [](Tensor& tensor) {
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.mutable_data<float>()[i] = -1;
  };
  Tensor row = matrix.Slice(0, 1, 2);
  row.Resize({5});
  CHECK(row.byte_offset() == 0);
  CHECK(row.raw_data() == row.storage()->data());
  overwrite(row);
  CHECK(matrix.ToVector<float>() == values);
  row = matrix.Slice(0, 1, 2);
  row.ReserveSpace(2);
  row.Resize({2, 4});
  overwrite(row);
  CHECK(matrix.ToVector<float>() == values);
  // The elements of a column are not next to each other: even its own shape needs new memory.
  for (const Shape& shape : {Shape{4, 2}, Shape{7, 2}, Shape{2}}) {
    Tensor columns = matrix.Slice(1, 1, 3);
    CHECK(columns.capacity() == 0);
    columns.Resize(shape);
    CHECK(columns.is_dense());
    overwrite(columns);
    CHECK(matrix.ToVector<float>() == values);
  }
  // Within its own rows it may.
  Tensor rows = matrix.Slice(0, 1, 3);
  rows.Resize({3});
  overwrite(rows);
  CHECK(matrix.ToVector<float>() ==
        Floats{0, 1, 2, 3, -1, -1, -1, 7, 8, 9, 10, 11, 12, 13, 14, 15});
}

TEST_CASE("Permute reorders axes over the same memory") {
  const Tensor tensor = Iota({2, 3, 4});
  const Tensor moved = tensor.Permute({2, 0, 1});
  CHECK(moved.shape() == Shape{4, 2, 3});
  CHECK(Strides(moved) == Ints{1, 12, 4});
  CHECK(moved.raw_data() == tensor.raw_data());
  const Floats values = moved.ToVector<float>();
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 2; ++j)
      for (int64_t k = 0; k < 3; ++k)
        CHECK(values[static_cast<size_t>(i * 6 + j * 3 + k)] ==
              static_cast<float>(j * 12 + k * 4 + i));
  CHECK(moved.Permute({1, 2, 0}).ToVector<float>() == tensor.ToVector<float>());
  CHECK(moved.Permute({-2, -1, -3}).is_dense());
  CHECK(Tensor::Scalar(1.f).Permute({}).rank() == 0);
}

TEST_CASE("Permute wants every axis once") {
  const Tensor tensor = Iota({2, 3});
  CHECK(Contains(ErrorOf([&] { tensor.Permute({0, 0}); }).message(), "Permute names axis 0 twice"));
  CHECK(Contains(ErrorOf([&] {
                   tensor.Permute({0, -2});
                 }).message(),
                 "Permute names axis 0 twice"));
  CHECK(Contains(ErrorOf([&] { tensor.Permute({1}); }).message(), "Permute needs 2 axes, found 1"));
  CHECK(ErrorOf([&] { tensor.Permute({0, 2}); }).code() == ErrorCode::kOutOfRange);
  CHECK(Contains(ErrorOf([&] {
                   tensor.Permute({0, (int64_t{1} << 32) + 1});
                 }).message(),
                 "axis 4294967297 is outside [2, 3]"));
}

TEST_CASE("a view of a storage must fit in it") {
  const opkit::Storage storage = opkit::AllocateStorage({}, 64);
  const Tensor tensor(storage, 8, {2, 3}, kF32, MakeDims({4, 1}));
  CHECK(tensor.byte_offset() == 8);
  CHECK(tensor.capacity() == 0);
  CHECK(Tensor(storage, 40, {2, 3}, kF32).capacity() == 24);
  CHECK(Tensor(storage, 64, {0}, kF32).numel() == 0);
  auto code = [&](int64_t offset, const Shape& shape, const Ints& strides) {
    return ErrorOf([&] { Tensor(storage, offset, shape, kF32, MakeDims(strides)); }).code();
  };
  CHECK(code(44, {2, 3}, {}) == ErrorCode::kOutOfRange);
  CHECK(code(-4, {2}, {}) == ErrorCode::kOutOfRange);
  CHECK(code(0, {2, 3}, {14, 1}) == ErrorCode::kOutOfRange);
  CHECK(code(0, {2, 3}, {1}) == ErrorCode::kOutOfRange);  // too few strides
  CHECK(code(0, {0, 3}, {1}) == ErrorCode::kOutOfRange);
  CHECK(code(0, {2, 3}, {-3, 1}) == ErrorCode::kOutOfRange);
  CHECK(code(0, {2, 2}, {INT64_MAX, INT64_MAX}) == ErrorCode::kOutOfRange);
  CHECK(code(0, {2}, {INT64_MAX}) == ErrorCode::kOutOfRange);
  CHECK(code(0, {INT64_C(1) << 62}, {}) == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([&] { Tensor(storage, 60, {2}, kF32); }).message() ==
        "a view float32[2] with strides[] at byte 60 does not fit in its storage of 64 bytes");
  CHECK(ErrorOf([&] { Tensor({}, 0, {2}, kF32); }).message() ==
        "a view float32[2] needs a storage");
  CHECK(ErrorOf([&] { Tensor(storage, 0, {2}, DType::kUndefined); }).message() ==
        "a view undefined[2] needs a dtype");
  CHECK(storage.use_count() == 2);
}

TEST_CASE("memory is shared where the bytes in use overlap") {
  const Tensor tensor = Iota({10});
  CHECK(tensor.SharesMemoryWith(tensor));
  CHECK(tensor.Slice(0, 0, 5).SharesMemoryWith(tensor.Slice(0, 4, 10)));
  CHECK_FALSE(tensor.Slice(0, 0, 5).SharesMemoryWith(tensor.Slice(0, 5, 10)));
  CHECK_FALSE(tensor.SharesMemoryWith(Iota({10})));
  CHECK_FALSE(tensor.SharesMemoryWith(Tensor()));
  CHECK_FALSE(Tensor().SharesMemoryWith(Tensor()));
  CHECK_FALSE(tensor.SharesMemoryWith(tensor.Slice(0, 5, 5)));  // nothing in it
  float values[4] = {};
  // Two storages over the same bytes.
  CHECK(Tensor::FromExternal(values, {4}).SharesMemoryWith(Tensor::FromExternal(values + 2, {2})));
  // The same address on another device is other memory.
  CHECK_FALSE(
      Tensor::FromExternal(values, {4}).SharesMemoryWith(Tensor::FromExternal(values, {4}, kCUDA)));
}

TEST_CASE("a tensor moves between devices of the same memory only") {
  Tensor tensor = Iota({2});
  tensor.SetDevice({DeviceType::kCPUStream, 1});
  CHECK(tensor.device() == Device{DeviceType::kCPUStream, 1});
  CHECK(tensor.ToVector<float>() == Floats{0, 1});
  const auto error = FailsUnchanged(tensor, [&] { tensor.SetDevice(kCUDA); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "tensor float32[2] on cpu_stream:1: cannot be moved to cuda without a copy; use CopyFrom "
        "or device/copy.hpp");
  Tensor nothing;
  nothing.SetDevice(kCUDA);
  CHECK(nothing.device() == kCUDA);
}

TEST_CASE("a blocked layout keeps its storage and is not read as if it were row-major") {
  const Layout blocked{999, {}};  // an id without a registration
  const opkit::Storage storage = opkit::AllocateStorage({}, 64);
  Tensor tensor = Tensor::FromLayout(storage, {3, 3}, kF32, blocked);
  CHECK(tensor.layout() == blocked);
  CHECK(tensor.capacity() == 64);
  CHECK(ToString(tensor) == "float32[3, 3] on cpu in layout 999");
  Tensor target = Iota({9});
  auto refuses = [&](auto&& call) {
    const auto error = FailsUnchanged(tensor, call);
    CAPTURE(error.message());
    CHECK((error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kInvalidArgument));
    CHECK(Contains(error.message(), "in layout 999"));
  };
  refuses([&] { tensor.ToVector<float>(); });
  refuses([&] { tensor.Contiguous(); });
  refuses([&] { tensor.View({9}); });
  refuses([&] { tensor.Slice(0, 0, 1); });
  refuses([&] { tensor.Permute({1, 0}); });
  refuses([&] { tensor.ReserveSpace(10); });
  refuses([&] { target.CopyFrom(tensor); });
  refuses([&] { target.ShareData(tensor); });
  CHECK(target.ToVector<float>() == Iota({9}).ToVector<float>());
  tensor.Resize({4, 4});  // as an output of an operator that writes the standard layout
  CHECK(tensor.layout().is_standard());
  CHECK(tensor.storage() == storage);
}

TEST_CASE("tensors are values: assignment shares, a moved-from tensor can be used again") {
  Tensor a = Iota({3});
  Tensor b;
  b = a;
  CHECK(b.raw_data() == a.raw_data());
  b.Resize({1});
  CHECK(a.shape() == Shape{3});
  Tensor c = std::move(a);
  CHECK(c.ToVector<float>() == Floats{0, 1, 2});
  a.Resize({2}, kF32);
  a.mutable_data<float>()[1] = 5;
  CHECK(a.raw_data() != c.raw_data());
  auto& same = c;
  c = same;
  CHECK(c.ToVector<float>() == Floats{0, 1, 2});
}

}  // namespace
