// Test data for checking operators: generates inputs, reads any dtype as numbers, and describes the
// differences of tensors in words. The gradient checker and CheckOperator share it.
#ifndef OPKIT_OP_CHECK_CHECK_DATA_HPP_
#define OPKIT_OP_CHECK_CHECK_DATA_HPP_

#include "opkit/core/tensor.hpp"
#include "opkit/op/random.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Makes a dense host tensor with values that most operators accept; a seed gives the same values on
// every machine. Floating-point and complex numbers have both signs and magnitude 0.25 to 1.25
// (away from the kinks of abs and relu), except float8_e8m0fnu, which has no negative ones;
// integers are 1 to 5, or to the largest one of their type; bools are random.
Tensor RandomTensor(const Shape& shape, DType dtype, uint64_t seed = 1);

namespace detail {

// SplitMix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
class CheckRandom {
 public:
  explicit CheckRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    const uint64_t number = MixBits(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return number;
  }
  // Returns a number in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// Returns the count of real numbers in one element: 2 for complex dtypes, else 1.
inline int64_t NumbersPerElement(DType dtype) { return IsComplex(dtype) ? 2 : 1; }
// Returns the i-th number of a dense host tensor.
double GetNumber(const Tensor& tensor, int64_t i);
// Writes the i-th number; integers wrap around.
void SetNumber(Tensor& tensor, int64_t i, double value);

// Makes a dense copy in ordinary host memory.
Tensor CopyOf(const Tensor& tensor);
bool SameBytes(const Tensor& a, const Tensor& b);

// Returns the position of element i of a dense tensor: "[1, 2]".
std::string PositionOf(const Shape& shape, int64_t i);
// Returns |a - b| relative to the larger of the two, absolute below 1; 0 if equal or both NaN.
double RelativeError(double a, double b);
// Describes the difference of two dense tensors; empty if they are equal. Tolerance 0 compares
// bits, but all NaNs are equal to each other.
std::string Difference(const Tensor& found, const Tensor& expected, double tolerance);
// Returns the allowed difference of two computations of the same result; see RelativeError.
double DefaultTolerance(DType dtype);

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/check/impl/check_data.ipp"
#endif

#endif  // OPKIT_OP_CHECK_CHECK_DATA_HPP_
