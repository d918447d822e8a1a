// NBitsLayout: how a matrix of 2-bit, 4-bit or 8-bit integers that are scaled block by block lies
// in memory. The kernels of com.microsoft.MatMulNBits of all devices use it.
#ifndef OPKIT_OPS_QUANTIZED_BLOCKED_LAYOUT_HPP_
#define OPKIT_OPS_QUANTIZED_BLOCKED_LAYOUT_HPP_

#include "opkit/op/operator_def.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// How the integers of a matrix [n, k] lie in memory. Each row is divided into blocks of `block`
// numbers, a multiple of 16, of `bits` bits each. A block begins at a byte; the lowest bits of a
// byte come first.
struct BlockedLayout {
  int64_t n, k, bits, block, blocks;

  OPKIT_HOST_DEVICE int64_t BlockBytes() const { return block * bits / 8; }
  OPKIT_HOST_DEVICE int32_t At(const uint8_t* bytes, int64_t i) const {
    const int64_t bit = i * bits;
    return (bytes[bit / 8] >> (bit % 8)) & ((1 << bits) - 1);
  }
};

// The layout of B that the attributes of a node describe.
struct NBitsLayout : BlockedLayout {
  // Throws kInvalidArgument for attributes without a meaning.
  explicit NBitsLayout(const OperatorDef& def)
      : BlockedLayout{def.args().Get<int64_t>("N", 0), def.args().Get<int64_t>("K", 0),
                      def.args().Get<int64_t>("bits", 4), def.args().Get<int64_t>("block_size", 0),
                      0} {
    constexpr int64_t kMost = int64_t{1} << 31;  // so that products fit in an int64
    if (n < 1 || k < 1 || n > kMost || k > kMost || block < 16 || block > kMost ||
        (block & (block - 1)) != 0 || (bits != 2 && bits != 4 && bits != 8))
      Throw(ErrorCode::kInvalidArgument, def.type(), ": N is ", n, ", K ", k, ", block_size ",
            block, ", bits ", bits,
            ", expected N and K from 1 on, a power of two from 16 on, and 2, 4 or 8 bits");
    blocks = (k + block - 1) / block;
  }
  // The bytes of a row of `count` numbers without blocks, as zero points have them.
  OPKIT_HOST_DEVICE int64_t RowBytes(int64_t count) const { return (count * bits + 7) / 8; }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_BLOCKED_LAYOUT_HPP_
