// Forward declarations of the classes that define, register, make, call and watch operators, for
// headers that only name them.
#ifndef OPKIT_OP_FWD_HPP_
#define OPKIT_OP_FWD_HPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class OperatorDef;
struct TensorInfo;
class InferenceContext;
class OpSchema;

struct KernelQuery;
struct KernelConfig;
struct Kernel;
class OpRegistry;

class Blob;
class Workspace;
class OperatorBase;
template <class Context>
class Operator;
struct CreateOptions;
struct KernelCandidate;
class ResolvedOperator;

template <class T>
class ObserverBase;

struct GradientValue;
struct GradientOpsMeta;
class GradientNames;
class GradientMakerBase;
class GradientRegistry;

}}  // namespace opkit

#endif  // OPKIT_OP_FWD_HPP_
