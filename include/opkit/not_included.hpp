// Declares names that opkit/opkit.hpp leaves out, so that the compiler's error for a program that
// uses them names the missing header. A macro becomes one static_assert; a class is declared with
// its header's name beside it.
#ifndef OPKIT_NOT_INCLUDED_HPP_
#define OPKIT_NOT_INCLUDED_HPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class AttrMap;            // defined in opkit/functions.hpp
class OpTensor;           // defined in opkit/functions.hpp
class OpResource;         // defined in opkit/functions.hpp
class GradientMakerBase;  // defined in opkit/op/gradient/gradient.hpp
class Profiler;           // defined in opkit/profile.hpp

}}  // namespace opkit

// For a variable of an incomplete class, clang shows the class's declaration. g++ does not; for an
// unknown name it suggests the same name in another namespace and shows that declaration.
// clang-format off
#ifdef __clang__
namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
#else
namespace opkit_not_included {
#endif
// clang-format on

class Graph;            // defined in opkit/graph.hpp
class Plan;             // defined in opkit/graph.hpp
class Executor;         // defined in opkit/graph.hpp
class SimpleNet;        // defined in opkit/graph/simple_net.hpp
class PassList;         // defined in opkit/partition.hpp
struct PlanOptions;     // defined in opkit/graph.hpp
struct Profile;         // defined in opkit/profile.hpp
struct ProfileTable;    // defined in opkit/profile.hpp
struct ProfileOptions;  // defined in opkit/profile.hpp
class Library;          // defined in opkit/plugin.hpp

#ifdef __clang__
}
}  // namespace opkit
#else
}  // namespace opkit_not_included
#endif

// Prints the error. The variable template then absorbs the rest of the statement, which the
// compiler does not check.
#define OPKIT_NOT_INCLUDED(macro, header)                            \
  static_assert(false, #macro " needs #include <opkit/" header ">"); \
  template <class Builder>                                           \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_not_included_) = Builder()

#ifndef OPKIT_REGISTER_OP
#define OPKIT_REGISTER_OP(name) OPKIT_NOT_INCLUDED(REGISTER_OP, "functions.hpp")
#endif
#ifndef OPKIT_REGISTER_PARTITIONER
#define OPKIT_REGISTER_PARTITIONER(name) OPKIT_NOT_INCLUDED(REGISTER_PARTITIONER, "partition.hpp")
#endif
#ifndef OPKIT_REGISTER_PASS
#define OPKIT_REGISTER_PASS(name) OPKIT_NOT_INCLUDED(REGISTER_PASS, "partition.hpp")
#endif
#ifndef OPKIT_REGISTER_GRADIENT
#define OPKIT_REGISTER_GRADIENT(...) \
  OPKIT_NOT_INCLUDED(REGISTER_GRADIENT, "op/gradient/gradient.hpp")
#define OPKIT_REGISTER_GRADIENT_STR(...) \
  OPKIT_NOT_INCLUDED(REGISTER_GRADIENT_STR, "op/gradient/gradient.hpp")
#define OPKIT_NO_GRADIENT(name) OPKIT_NOT_INCLUDED(NO_GRADIENT, "op/gradient/gradient.hpp")
#define OPKIT_SHOULD_NOT_DO_GRADIENT(name) \
  OPKIT_NOT_INCLUDED(SHOULD_NOT_DO_GRADIENT, "op/gradient/gradient.hpp")
#define OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(name) \
  OPKIT_NOT_INCLUDED(GRADIENT_NOT_IMPLEMENTED_YET, "op/gradient/gradient.hpp")
#endif

#endif  // OPKIT_NOT_INCLUDED_HPP_
