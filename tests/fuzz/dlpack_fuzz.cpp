// Fields of a DLPack tensor, right and wrong: an Error, after which it is still the caller's, or a
// tensor of exactly these elements that calls the deleter once.
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "fuzz_bytes.hpp"
#include "opkit/base/index.hpp"
#include "opkit/core/dlpack.hpp"

namespace {

using namespace opkit;

void Require(bool condition) {
  if (!condition) std::abort();
}

constexpr int64_t kBytes = 512;
alignas(16) uint8_t g_memory[kBytes];
int g_deleted = 0;

struct Fields {
  int64_t shape[64] = {}, strides[64] = {};
  dlpack::DLTensor tensor = {};
};

void Fill(Bytes& in, Fields* fields) {
  dlpack::DLTensor& out = fields->tensor;
  out.ndim = in.RightOr<int32_t>(in.Byte() % 5, {-1, INT32_MIN, 8, 64});
  for (int i = 0; i < 64 && i < out.ndim; ++i) {
    fields->shape[i] = in.Rarely() ? in.Number() : in.Byte() % 5;
    fields->strides[i] = in.Rarely() ? in.Number() : in.Byte() % 32;
  }
  if (in.Byte() % 2) {  // dense, as far as these are any
    int64_t step = 1;
    for (int i = (std::max)(out.ndim, 0) - 1; i >= 0; --i) {
      fields->strides[i] = step;
      if (__builtin_mul_overflow(step, fields->shape[i], &step)) step = 1;
    }
  }
  out.shape = in.Mostly<int64_t*>(fields->shape, nullptr);
  out.strides = in.Byte() % 3 ? fields->strides : nullptr;
  const auto& row = detail::kDLPackTypes[in.Byte() % std::size(detail::kDLPackTypes)];
  out.dtype = {in.Mostly<uint8_t>(row.code, in.Byte()), in.Mostly<uint8_t>(row.bits, in.Byte()),
               in.Mostly<uint16_t>(1, in.Byte())};
  out.device = {in.RightOr<int32_t>(1, {0, 2, 3, 13, 64, 127, 128, -1, INT32_MAX}),
                in.RightOr<int32_t>(0, {1, -1, INT32_MIN})};
  out.data = in.Mostly<void*>(g_memory + in.Mostly(0, in.Byte() % 64), nullptr);
  out.byte_offset = in.Rarely() ? static_cast<uint64_t>(in.Number()) : in.Byte() % 16 * 8;
}

// The byte of g_memory where element `index`, one for each axis, begins.
int64_t ByteOf(const Fields& fields, const std::vector<int64_t>& index, int64_t item) {
  const dlpack::DLTensor& in = fields.tensor;
  int64_t at = 0, dense = 1;
  for (int i = in.ndim - 1; i >= 0; --i) {
    at += index[detail::Index(i)] * (in.strides ? in.strides[i] : dense);
    dense *= in.shape[i];
  }
  return static_cast<uint8_t*>(in.data) - g_memory + static_cast<int64_t>(in.byte_offset) +
         at * item;
}

// True if every element that the fields describe lies in g_memory. Computes in 128 bits, so that
// nothing wraps.
bool LiesInMemory(const Fields& fields, int64_t item) {
  const dlpack::DLTensor& in = fields.tensor;
  if (!in.data || in.byte_offset > kBytes) return false;
  __int128 last = 0, dense = 1;
  for (int i = in.ndim - 1; i >= 0; --i) {
    if (in.shape[i] == 0) return false;  // of no elements: nothing to read
    if (in.shape[i] > kBytes) return false;
    if (in.shape[i] > 1) last += (in.shape[i] - 1) * (in.strides ? in.strides[i] : dense);
    dense *= in.shape[i];
    if (last > kBytes || dense > kBytes) return false;
  }
  const int64_t begin =
      static_cast<uint8_t*>(in.data) - g_memory + static_cast<int64_t>(in.byte_offset);
  return begin + (last + 1) * item <= kBytes;
}

void CheckElements(const Fields& fields, const Tensor& tensor) {
  const int64_t item = ItemSize(tensor.dtype());
  const Tensor dense = tensor.Contiguous();
  Require(dense.is_dense() && dense.shape() == tensor.shape());
  std::vector<int64_t> index(detail::Index(tensor.rank()));
  const auto* bytes = static_cast<const uint8_t*>(dense.raw_data());
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    Require(std::memcmp(bytes + i * item, g_memory + ByteOf(fields, index, item),
                        detail::Index(item)) == 0);
    for (int axis = tensor.rank() - 1; axis >= 0; --axis) {
      if (++index[detail::Index(axis)] < tensor.dim(axis)) break;
      index[detail::Index(axis)] = 0;
    }
  }
}

void CheckTensor(const Fields& fields, const Tensor& tensor) {
  const dlpack::DLTensor& in = fields.tensor;
  Require(tensor.rank() == in.ndim && tensor.numel() >= 0);
  Require(!ToString(tensor).empty());
  for (int i = 0; i < in.ndim; ++i) Require(tensor.dim(i) == in.shape[i]);
  Require(static_cast<int32_t>(tensor.device().type) == in.device.device_type);
  if (tensor.device() != Device{}) return;
  if (LiesInMemory(fields, ItemSize(tensor.dtype()))) CheckElements(fields, tensor);
  const Tensor again = FromDLPack(ToDLPack(tensor));
  Require(again.shape() == tensor.shape() && again.dtype() == tensor.dtype() &&
          again.raw_data() == tensor.raw_data());
}

template <class Managed>
void Import(const Fields& fields, Managed* managed, bool accept_read_only) {
  g_deleted = 0;
  managed->dl_tensor = fields.tensor;
  managed->deleter = [](Managed*) { ++g_deleted; };
  try {
    const Tensor tensor = FromDLPack(managed, accept_read_only ? opkit::DLPackReadOnly::kAccepted
                                                               : opkit::DLPackReadOnly::kRefused);
    Require(g_deleted == 0);
    CheckTensor(fields, tensor);
  } catch (const Error&) {
    Require(g_deleted == 0);
    return;
  }
  Require(g_deleted == 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::iota(g_memory, g_memory + kBytes, uint8_t{0});
  Bytes in(data, size);
  Fields fields;
  if (in.Byte() % 2) {
    dlpack::DLManagedTensorVersioned managed = {};
    managed.version = {in.Mostly(dlpack::kMajorVersion, 2u), in.Byte()};
    managed.flags = in.Mostly<uint64_t>(0, in.Byte());
    Fill(in, &fields);
    Import(fields, &managed, in.Byte() % 2);
  } else {
    dlpack::DLManagedTensor managed = {};
    Fill(in, &fields);
    Import(fields, &managed, false);
  }
  return 0;
}
