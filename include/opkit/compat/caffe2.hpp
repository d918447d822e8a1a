// Caffe2's further spellings, for operators that are ported: this header takes the place of
// caffe2/core/operator.h, and the source's own `namespace caffe2` stays. The setters of OpSchema
// and the REGISTER macros that Caffe2 has come with opkit/opkit.hpp.
#ifndef OPKIT_COMPAT_CAFFE2_HPP_
#define OPKIT_COMPAT_CAFFE2_HPP_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "opkit/compat/dispatch_helper.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/simple_net.hpp"
#include "opkit/op/gradient/gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

using EnginePref = detail::BackendPreference;

// Caffe2's spelling of OpRegistry::SetPreference.
inline void SetGlobalEnginePref(DeviceType device, EnginePref engines) {
  OpRegistry::Global().SetPreference(device, std::move(engines));
}
inline void SetOpEnginePref(const std::string& op, DeviceType device, EnginePref engines) {
  OpRegistry::Global().SetPreference(op, device, std::move(engines));
}
// Sets preferences from maps: device types to backends, or device types to operators and their
// backends. Changes nothing if one entry is wrong.
template <class EnginesByDevice>
void SetGlobalEnginePref(const EnginesByDevice& pref) {
  for (const auto& [device, engines] : pref) OpRegistry::Global().CheckPreference(device, engines);
  for (const auto& [device, engines] : pref) OpRegistry::Global().SetPreference(device, engines);
}
template <class EnginesByDevice>
void SetOpEnginePref(const std::string& op, const EnginesByDevice& pref) {
  for (const auto& entry : pref) OpRegistry::Global().CheckPreference(op, entry.first);
  for (const auto& [device, engines] : pref)
    OpRegistry::Global().SetPreference(op, device, engines);
}
template <class OpsByDevice>
void SetPerOpEnginePref(const OpsByDevice& pref) {
  for (const auto& [device, ops] : pref)
    for (const auto& entry : ops) OpRegistry::Global().CheckPreference(entry.first, device);
  for (const auto& [device, ops] : pref)
    for (const auto& [op, engines] : ops) OpRegistry::Global().SetPreference(op, device, engines);
}

}}  // namespace opkit

// The names that Caffe2's sources use without a qualifier.
namespace caffe2 {
using namespace ::opkit;
using std::map;
using std::string;
using std::unique_ptr;
using std::vector;
using TIndex = int64_t;
using TensorCPU = ::opkit::Tensor;
}  // namespace caffe2

#ifndef OPKIT_NO_SHORT_MACROS
#define USE_OPERATOR_CONTEXT_FUNCTIONS OPKIT_USE_OPERATOR_FUNCTIONS(Context)
// Initialises a member from an argument of the node.
#define OP_SINGLE_ARG(type, name, variable, fallback) \
  variable(this->template GetSingleArgument<type>(name, (fallback)))

#define CAFFE_THROW(...) ::opkit::Throw(::opkit::ErrorCode::kInvalidArgument, __VA_ARGS__)
#define CAFFE_ENFORCE(condition, ...) OPKIT_ENFORCE(condition __VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_EQ(a, b, ...) OPKIT_ENFORCE((a) == (b)__VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_NE(a, b, ...) OPKIT_ENFORCE((a) != (b)__VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_LT(a, b, ...) OPKIT_ENFORCE((a) < (b)__VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_LE(a, b, ...) OPKIT_ENFORCE((a) <= (b)__VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_GT(a, b, ...) OPKIT_ENFORCE((a) > (b)__VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_GE(a, b, ...) OPKIT_ENFORCE((a) >= (b)__VA_OPT__(, ) __VA_ARGS__)
#endif  // OPKIT_NO_SHORT_MACROS

#endif  // OPKIT_COMPAT_CAFFE2_HPP_
