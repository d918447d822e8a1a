// NumericObserver's definitions: counting NaNs and infinities by their bits.
#ifndef OPKIT_OP_IMPL_OBSERVERS_IPP_
#define OPKIT_OP_IMPL_OBSERVERS_IPP_

#include <cstring>

#include "opkit/op/observers.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Counts NaNs and infinities by their bits. `infinity` is the bit pattern of infinity; patterns
// above it, without the sign bit, are NaNs.
template <class Bits>
void CountNumerics(const Tensor& dense, Bits infinity, OutputNumerics& seen) {
  const auto* bytes = static_cast<const char*>(dense.raw_data());
  for (int64_t i = 0; i < dense.numel(); ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    bits = static_cast<Bits>(bits << 1) >> 1;
    if (bits < infinity) continue;
    ++(bits == infinity ? seen.infinities : seen.nans);
    if (seen.first_bad < 0) seen.first_bad = i;
  }
}
inline OutputNumerics ExamineNumerics(const std::string& name, const Tensor& tensor) {
  OutputNumerics seen{name, tensor.dtype(), tensor.shape()};
  if (!IsFloatingPoint(tensor.dtype()) || !tensor.initialized() || !tensor.layout().is_standard() ||
      !IsHostAccessible(tensor.device().type))
    return seen;
  seen.checked = true;
  const Tensor dense = tensor.is_dense() ? tensor : tensor.Contiguous();
  // Compares bits, because -ffast-math would fold std::isnan to false.
  if (seen.dtype == DType::kFloat64) CountNumerics<uint64_t>(dense, 0x7ff0000000000000, seen);
  if (seen.dtype == DType::kFloat32) CountNumerics<uint32_t>(dense, 0x7f800000, seen);
  if (seen.dtype == DType::kFloat16) CountNumerics<uint16_t>(dense, 0x7c00, seen);
  if (seen.dtype == DType::kBFloat16) CountNumerics<uint16_t>(dense, 0x7f80, seen);
  return seen;
}

}  // namespace detail

OPKIT_INLINE void NumericObserver::Stop(bool succeeded) {
  outputs_.clear();
  if (!succeeded) return;
  OperatorBase& op = *subject();
  op.SyncDeviceBarrierForObservers();
  const bool has_event = op.HasAsyncPart() && !op.IsEventDisabled();
  if (has_event && (op.event().IsScheduled() || op.event().exception())) return;
  bool bad = false;
  for (int i = 0; i < op.OutputSize(); ++i) {
    if (!op.HasOutput(i) || !op.OutputIsType<Tensor>(i)) continue;
    const std::string& name = op.def().outputs()[detail::Index(i)];
    outputs_.push_back(detail::ExamineNumerics(name, *op.Output(i)));
    bad |= outputs_.back().first_bad >= 0;
  }
  bad_runs_ += bad;
}
OPKIT_INLINE std::string NumericObserver::Report() const {
  std::string out = ToString(subject()->def());
  for (const OutputNumerics& seen : outputs_) {
    out += StrCat("\n  output '", seen.name, "' ", seen.dtype, seen.shape, ": ");
    out += !seen.checked        ? "not checked"
           : seen.first_bad < 0 ? "finite"
                                : StrCat(seen.nans, " NaN, ", seen.infinities,
                                         " infinite, first at element ", seen.first_bad);
  }
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_OBSERVERS_IPP_
