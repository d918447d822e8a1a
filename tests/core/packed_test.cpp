#include "opkit/core/packed.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "opkit/core/tensor.hpp"
#include "support/error_of.hpp"

namespace {

using namespace opkit;
using Bytes = std::vector<uint8_t>;

constexpr DType kPacked[] = {DType::kInt2, DType::kUInt2, DType::kInt4, DType::kUInt4,
                             DType::kFloat4E2M1};

// 1, 2, 3, … as codes of a packed tensor.
Tensor Counted(const Shape& shape, DType dtype) {
  Bytes codes(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i + 1);
  Tensor out(shape, dtype);
  Pack(codes.data(), BitSize(dtype), 0, shape.numel(), out.raw_mutable_data());
  return out;
}
Bytes CodesOf(const Tensor& tensor) {
  Bytes codes(static_cast<size_t>(tensor.numel()));
  Unpack(tensor.raw_data(), BitSize(tensor.dtype()), 0, tensor.numel(), codes.data());
  return codes;
}
Bytes BytesIn(const Tensor& tensor) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.raw_data());
  return Bytes(bytes, bytes + tensor.nbytes());
}

TEST_CASE("the first element is in the low bits, and unused bits are 0") {
  CHECK(BytesIn(Counted({3}, DType::kUInt4)) == Bytes{0x21, 0x03});
  CHECK(BytesIn(Counted({5}, DType::kUInt2)) == Bytes{0x39, 0x01});
  for (const DType dtype : kPacked)
    for (int64_t count = 0; count < 10; ++count) {
      CAPTURE(dtype);
      CAPTURE(count);
      const int bits = BitSize(dtype);
      const Tensor tensor = Counted({count}, dtype);
      CHECK(tensor.nbytes() == (count * bits + 7) / 8);
      const Bytes codes = CodesOf(tensor);
      for (int64_t i = 0; i < count; ++i) {
        const auto code = static_cast<uint8_t>((i + 1) % (1 << bits));
        CHECK(codes[static_cast<size_t>(i)] == code);
        CHECK(PackedCode(tensor.raw_data(), bits, i) == code);
      }
    }
}

TEST_CASE("one code is written without its neighbours") {
  uint8_t bytes[2] = {0xff, 0xff};
  SetPackedCode(bytes, 2, 5, 0xf5);
  CHECK(bytes[0] == 0xff);
  CHECK(bytes[1] == 0xf7);
  SetPackedCode(bytes, 4, 0, 0);
  CHECK(bytes[0] == 0xf0);
}

TEST_CASE("every code of two and four bits is a number") {
  const auto numbers = [](DType dtype) {
    std::vector<float> out;
    for (int code = 0; code < 1 << BitSize(dtype); ++code)
      out.push_back(NumberOfCode(dtype, static_cast<uint8_t>(code)));
    return out;
  };
  using Floats = std::vector<float>;
  CHECK(numbers(DType::kInt2) == Floats{0, 1, -2, -1});
  CHECK(numbers(DType::kUInt2) == Floats{0, 1, 2, 3});
  CHECK(numbers(DType::kInt4) == Floats{0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1});
  CHECK(numbers(DType::kUInt4) == Floats{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(numbers(DType::kFloat4E2M1) ==
        Floats{0, .5, 1, 1.5, 2, 3, 4, 6, -0.f, -.5, -1, -1.5, -2, -3, -4, -6});
}

TEST_CASE("a packed tensor is copied, reshaped and resized as a whole") {
  for (const DType dtype : kPacked) {
    CAPTURE(dtype);
    const Tensor x = Counted({3, 5}, dtype);
    CHECK(BytesIn(x.Contiguous()) == BytesIn(x));
    CHECK(CodesOf(x.View({5, 3})) == CodesOf(x));
    CHECK(x.Permute({0, 1}).is_dense());
    CHECK(CodesOf(x.View({1, 15}).Permute({1, 0})) == CodesOf(x));
    Tensor y = x;
    const void* memory = y.raw_data();
    y.Resize({2, 2});
    CHECK(y.raw_data() == memory);
    CHECK(y.nbytes() == 4 * BitSize(dtype) / 8);
    CHECK(y.dtype() == dtype);
    CHECK(x.SharesMemoryWith(y));
    Tensor shared(Shape{15}, dtype);
    shared.ShareData(x);
    CHECK(shared.raw_data() == memory);
    Tensor reserved = Counted({3, 5}, dtype);
    reserved.ReserveSpace(20);
    CHECK(CodesOf(reserved) == CodesOf(x));
    CHECK(Tensor({0, 3}, dtype).nbytes() == 0);
  }
  CHECK(ErrorOf([] { Tensor({2}, DType::kInt4).data<int8_t>(); }).code() ==
        ErrorCode::kTypeMismatch);
}

TEST_CASE("a view of a packed tensor is a run of whole bytes") {
  const Tensor x = Counted({4, 3}, DType::kUInt4);
  const Tensor middle = x.Slice(0, 2, 4);
  CHECK(CodesOf(middle) == Bytes{7, 8, 9, 10, 11, 12});
  CHECK(middle.byte_offset() == 3);
  CHECK(middle.capacity() == 3);
  const Tensor odd = Counted({3, 3}, DType::kUInt4).Slice(0, 0, 3);
  CHECK(odd.nbytes() == 5);  // the last byte is half used
  CHECK(CodesOf(odd) == Bytes{1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(x.Slice(0, 1, 1).numel() == 0);
  const auto code_of = [](auto f) { return ErrorOf(f).code(); };
  CHECK(code_of([&] { x.Slice(0, 1, 3); }) == ErrorCode::kUnsupported);  // begins inside a byte
  CHECK(code_of([&] { x.Slice(0, 0, 1); }) == ErrorCode::kUnsupported);  // ends inside a byte
  CHECK(code_of([&] { x.Slice(1, 0, 2); }) == ErrorCode::kUnsupported);  // is not dense
  CHECK(code_of([&] { x.Permute({1, 0}); }) == ErrorCode::kUnsupported);
  CHECK(code_of([&] {
          Tensor(x.storage(), 0, {2, 2}, DType::kInt4, {3, 1});
        }) == ErrorCode::kUnsupported);
  const Tensor view(x.storage(), 1, {2, 2}, DType::kUInt4, {2, 1});
  CHECK(CodesOf(view) == Bytes{3, 4, 5, 6});
  CHECK(code_of([&] { Tensor(x.storage(), 5, {3}, DType::kUInt4); }) == ErrorCode::kOutOfRange);
  CHECK(std::string(ErrorOf([&] { x.Slice(1, 0, 2); }).message()) ==
        "tensor uint4[4, 3] on cpu: slice [0, 2) of axis 1 is no run of whole bytes; cast the "
        "tensor to a type of 8 bits first");
}

}  // namespace
