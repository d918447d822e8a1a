// The element types of the kernels of the "onednn" backend: float32, and for some kernels bfloat16
// if the CPU has instructions for it.
#ifndef OPKIT_BACKENDS_ONEDNN_TYPES_HPP_
#define OPKIT_BACKENDS_ONEDNN_TYPES_HPP_

#include <oneapi/dnnl/dnnl.hpp>

#include "opkit/backends/onednn/backend.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

using OnednnType = dnnl::memory::data_type;

// With the number of the instructions that it may use: kernels of others have other times.
OPKIT_REGISTER_BACKEND_VERSION(kOnednnBackend, [] {
  return StrCat(dnnl_version()->major, ".", dnnl_version()->minor, ".", dnnl_version()->patch,
                " isa ", static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
});

inline OnednnType OnednnTypeOf(DType dtype) {
  return dtype == DType::kBFloat16 ? OnednnType::bf16 : OnednnType::f32;
}
// True if oneDNN may use these instructions: the CPU has them, and ONEDNN_MAX_CPU_ISA allows them.
inline bool OnednnHas(dnnl::cpu_isa instructions) {
  const auto wanted = static_cast<unsigned>(instructions);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}
// Returns the number of floats that the CPU computes at once with oneDNN's instructions: 16 with
// AVX-512, else 8. A Zen 4 computes the two halves of a register of AVX-512 one after the other.
inline int64_t OnednnLanes() {
  static const int64_t lanes = [] {
    if (!OnednnHas(dnnl::cpu_isa::avx512_core)) return 8;
#if defined(__x86_64__)
    if (__builtin_cpu_is("amdfam19h")) return 8;  // AVX-512 in this family: Zen 4
#endif
    return 16;
  }();
  return lanes;
}
// True if oneDNN may use bfloat16 instructions. CPUs with AMX have them, too.
inline bool OnednnHasBFloat16() {
  static const bool has = OnednnHas(dnnl::cpu_isa::avx512_core_bf16);
  return has;
}
// Returns oneDNN's type for float32 and bfloat16. Throws UnsupportedOperatorFeature for other
// types, and for bfloat16 without such instructions, because oneDNN then has only plain loops. For
// Propose and runs.
inline OnednnType RequireOnednnType(DType dtype) {
  if (dtype == DType::kBFloat16 && !OnednnHasBFloat16())
    throw UnsupportedOperatorFeature("this CPU has no bfloat16 instructions");
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16)
    throw UnsupportedOperatorFeature(
        StrCat("it computes float32 and bfloat16, and input 0 is ",
               dtype == DType::kUndefined ? "not known" : ToString(dtype)));
  return OnednnTypeOf(dtype);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_ONEDNN_TYPES_HPP_
