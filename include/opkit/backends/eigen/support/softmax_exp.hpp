// SoftmaxExp: exp in Eigen's array expressions, for Softmax and Attention of the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_SOFTMAX_EXP_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_SOFTMAX_EXP_HPP_

#include "opkit/backends/eigen/support/elementwise_math.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// exp with underflow to 0. The result of Eigen's array expression would stay above 0.
struct SoftmaxExp {
  float operator()(float x) const { return std::exp(x); }
  Packet packetOp(Packet x) const { return Exp(x); }
};

}}}  // namespace opkit::detail

template <>
struct Eigen::internal::functor_traits<opkit::detail::SoftmaxExp>
    : Eigen::internal::functor_traits<Eigen::internal::scalar_exp_op<float>> {};

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_SOFTMAX_EXP_HPP_
