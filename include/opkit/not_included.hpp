// Names what opkit/opkit.hpp leaves out, so that the compiler's words for a program that uses it
// without its header name that header: a macro is one error, a class is declared beside its
// header's name.
#ifndef OPKIT_NOT_INCLUDED_HPP_
#define OPKIT_NOT_INCLUDED_HPP_

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

class AttrMap;            // defined in opkit/functions.hpp
class OpTensor;           // defined in opkit/functions.hpp
class OpResource;         // defined in opkit/functions.hpp
class GradientMakerBase;  // defined in opkit/graph.hpp
class Profiler;           // defined in opkit/profile.hpp

}  // namespace opkit

// clang shows where a class is declared that a variable needs defined. g++ does not, but suggests
// the same name of another namespace, and shows that.
#ifdef __clang__
namespace opkit::inline OPKIT_ABI {
#else
namespace opkit_not_included {
#endif

class Graph;            // defined in opkit/graph.hpp
class Plan;             // defined in opkit/graph.hpp
class Executor;         // defined in opkit/graph.hpp
class SimpleNet;        // defined in opkit/graph.hpp
class PassList;         // defined in opkit/graph.hpp
struct PlanOptions;     // defined in opkit/graph.hpp
struct Profile;         // defined in opkit/profile.hpp
struct ProfileTable;    // defined in opkit/profile.hpp
struct ProfileOptions;  // defined in opkit/profile.hpp
class Library;          // defined in opkit/plugin.hpp

#ifdef __clang__
}  // namespace opkit
#else
}  // namespace opkit_not_included
#endif

// The error, and a variable template that takes the rest of the statement and does not look at it.
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
#define OPKIT_REGISTER_GRADIENT(...) OPKIT_NOT_INCLUDED(REGISTER_GRADIENT, "graph.hpp")
#define OPKIT_REGISTER_GRADIENT_STR(...) OPKIT_NOT_INCLUDED(REGISTER_GRADIENT_STR, "graph.hpp")
#define OPKIT_NO_GRADIENT(name) OPKIT_NOT_INCLUDED(NO_GRADIENT, "graph.hpp")
#define OPKIT_SHOULD_NOT_DO_GRADIENT(name) OPKIT_NOT_INCLUDED(SHOULD_NOT_DO_GRADIENT, "graph.hpp")
#define OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(name) \
  OPKIT_NOT_INCLUDED(GRADIENT_NOT_IMPLEMENTED_YET, "graph.hpp")
#endif

#endif  // OPKIT_NOT_INCLUDED_HPP_
