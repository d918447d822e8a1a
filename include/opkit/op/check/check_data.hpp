// Test data for checking operators: generated inputs, reading any dtype as numbers, and comparison
// of tensors in words. Shared by the gradient checker and CheckOperator.
#ifndef OPKIT_OP_CHECK_CHECK_DATA_HPP_
#define OPKIT_OP_CHECK_CHECK_DATA_HPP_

#include "opkit/core/tensor.hpp"
#include "opkit/op/random.hpp"

namespace opkit::inline OPKIT_ABI {

// A dense tensor on the host with values that most operators take, the same everywhere for a seed:
// floating-point and complex numbers of both signs and of magnitude 0.25 to 1.25 (away from the
// kinks of abs and relu), integers 1 to 5, either bool.
Tensor RandomTensor(const Shape& shape, DType dtype, uint64_t seed = 1);

namespace detail {

// SplitMix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
class CheckRandom {
 public:
  explicit CheckRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    const uint64_t number = MixBits(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return number;
  }
  // A number in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// The real numbers in one element: 2 for complex dtypes, else 1.
inline int64_t NumbersPerElement(DType dtype) { return IsComplex(dtype) ? 2 : 1; }
// The i-th number of a dense tensor on the host.
double GetNumber(const Tensor& tensor, int64_t i);
// Writes the i-th number; integers wrap around.
void SetNumber(Tensor& tensor, int64_t i, double value);

// A copy in ordinary memory, dense, on the host.
Tensor CopyOf(const Tensor& tensor);
bool SameBytes(const Tensor& a, const Tensor& b);

// The position of element i of a dense tensor: "[1, 2]".
std::string PositionOf(const Shape& shape, int64_t i);
inline double Magnitude(double x) { return x < 0 ? -x : x; }
// |a - b| relative to the larger of the two, absolute below 1; 0 when equal or both NaN.
double RelativeError(double a, double b);
// How two dense tensors differ, in words; empty when they do not. With tolerance 0 bits count, but
// any NaN equals any other.
std::string Difference(const Tensor& found, const Tensor& expected, double tolerance);
// The difference that two computations of the same result may have.
double DefaultTolerance(DType dtype);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/check/impl/check_data.ipp"
#endif

#endif  // OPKIT_OP_CHECK_CHECK_DATA_HPP_
