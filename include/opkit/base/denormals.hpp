// SetFlushDenormals: makes this thread's floating-point unit take denormal numbers (smaller than
// 1.2e-38 in float32) as zeros, in operands and in results. Many CPUs compute with denormal numbers
// a hundred times slower than with others. InvocationScope calls it for a plan that asks for it.
#ifndef OPKIT_BASE_DENORMALS_HPP_
#define OPKIT_BASE_DENORMALS_HPP_

#include <cstdint>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The bits of the thread's control register that flush denormal numbers: FTZ and DAZ of MXCSR on
// x86, FZ and FZ16 of FPCR on ARM64; 0 on CPUs for which opkit does not know the register.
#if defined(__x86_64__) || defined(__SSE2__)
inline constexpr uint64_t kFlushDenormalBits = 0x8040;
inline uint64_t ReadFloatControl() { return __builtin_ia32_stmxcsr(); }
inline void WriteFloatControl(uint64_t bits) {
  __builtin_ia32_ldmxcsr(static_cast<unsigned>(bits));
}
#elif defined(__aarch64__)
inline constexpr uint64_t kFlushDenormalBits = 0x1080000;
inline uint64_t ReadFloatControl() {
  uint64_t bits;
  asm volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
inline void WriteFloatControl(uint64_t bits) { asm volatile("msr fpcr, %0" : : "r"(bits)); }
#else
inline constexpr uint64_t kFlushDenormalBits = 0;
inline uint64_t ReadFloatControl() { return 0; }
inline void WriteFloatControl(uint64_t) {}
#endif

// The bits of this thread from before SetFlushDenormals(true): a program may have set them.
inline constinit thread_local uint64_t t_own_denormal_bits = 0;

// With true, sets the bits; with false, puts back those from before. Calls alternate.
OPKIT_NOINLINE inline void SetFlushDenormals(bool flushes) {
  const uint64_t now = ReadFloatControl();
  if (flushes) t_own_denormal_bits = now & kFlushDenormalBits;
  WriteFloatControl((now & ~kFlushDenormalBits) |
                    (flushes ? kFlushDenormalBits : t_own_denormal_bits));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_DENORMALS_HPP_
