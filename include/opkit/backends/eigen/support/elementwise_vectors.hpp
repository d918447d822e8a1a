// Vectors of sixteen elements, by the vector extensions of g++ and clang, for elementwise kernels
// on types other than float or with results of another size. A vector takes as many registers as it
// needs.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_ELEMENTWISE_VECTORS_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_ELEMENTWISE_VECTORS_HPP_

#include "opkit/backends/eigen/support/elementwise_kernel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr int64_t kVector = 16;
template <class T>
struct VectorOfElements {
  typedef T type __attribute__((vector_size(kVector * sizeof(T))));
};
template <class T>
using Vector = typename VectorOfElements<T>::type;

// Converts each element. By reference, because the widest vectors have no common calling
// convention.
template <class To, class From>
void ConvertVector(const From& from, To& to) {
  to = __builtin_convertvector(from, To);
}
// Sets `mask` to -1 for bytes that are not 0, else to 0.
inline void IsTrue(const Vector<uint8_t>& bytes, Vector<int8_t>& mask) {
  mask = reinterpret_cast<const Vector<int8_t>&>(bytes) != Vector<int8_t>{};
}

// An operand of a run, read vector by vector.
template <class T>
class VectorOperand {
 public:
  VectorOperand(const ElementRun& run, int i)
      : data_(static_cast<const T*>(run.in[i])), repeated_(run.step[i] == 0) {
    vector_ = Vector<T>{} + *data_;
  }
  // Returns `size` elements from element i on; the other elements keep values of an earlier call.
  template <class Size>
  const Vector<T>& Load(int64_t i, Size size) {
    if (!repeated_) std::memcpy(&vector_, data_ + i, static_cast<size_t>(size) * sizeof(T));
    return vector_;
  }

 private:
  const T* data_;
  const bool repeated_;
  Vector<T> vector_;
};

// Calls f(vector of each operand…, out) for every sixteen elements of the run. The output may be an
// operand.
template <class To, class F, class... Operands>
void RunVectors(const ElementRun& run, const F& f, Operands&&... operands) {
  To* to = static_cast<To*>(run.out);
  auto block = [&](int64_t i, auto size) {
    Vector<To> out;
    f(operands.Load(i, size)..., out);
    std::memcpy(to + i, &out, static_cast<size_t>(size) * sizeof(To));
  };
  int64_t i = 0;
  for (; i + kVector <= run.n; i += kVector) block(i, std::integral_constant<int64_t, kVector>());
  if (i < run.n) block(i, run.n - i);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_ELEMENTWISE_VECTORS_HPP_
