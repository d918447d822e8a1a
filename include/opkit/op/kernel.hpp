// Kernel: one implementation of an operator for a device type and a backend. For a KernelQuery it
// proposes configurations, of which selection picks one before memory is planned.
#ifndef OPKIT_OP_KERNEL_HPP_
#define OPKIT_OP_KERNEL_HPP_

#include <memory>
#include <optional>
#include <span>

#include "opkit/base/unique_function.hpp"
#include "opkit/op/fwd.hpp"
#include "opkit/op/inference.hpp"
#include "opkit/op/operator_def.hpp"

namespace opkit::inline OPKIT_ABI {

// A node and all that is known of its values: dtypes, shapes, layouts, constants' data.
struct KernelQuery {
  const OperatorDef& def;
  std::span<const TensorInfo> inputs;
  std::span<const TensorInfo> outputs;
};

// One way in which a kernel can run a node.
struct KernelConfig {
  std::vector<Layout> input_layouts;  // empty: all standard; otherwise one for each value
  std::vector<Layout> output_layouts;
  std::vector<std::pair<int, int>> inplace;  // {input, output} that may share memory
  int64_t scratch_bytes = 0;                 // for a run; see OperatorBase::Scratch
  double cost_ns = -1;                       // an estimate; negative: none

  Layout input_layout(size_t i) const {
    return i < input_layouts.size() ? input_layouts[i] : Layout();
  }
  Layout output_layout(size_t o) const {
    return o < output_layouts.size() ? output_layouts[o] : Layout();
  }
  // All of its layouts are the standard one.
  bool is_standard() const {
    for (const auto* layouts : {&input_layouts, &output_layouts})
      for (const Layout& layout : *layouts)
        if (!layout.is_standard()) return false;
    return true;
  }
};

// Makes an operator for a node; a function (const OperatorDef&, Workspace*), which may take the
// configuration that was chosen as a third argument: const KernelConfig*, null where none was.
class OperatorCreator {
 public:
  using Pointer = std::unique_ptr<OperatorBase>;

  OperatorCreator() = default;
  template <class F>
    requires(!std::is_same_v<F, OperatorCreator> &&
             (detail::CallableAs<F, Pointer, const OperatorDef&, Workspace*> ||
              detail::CallableAs<F, Pointer, const OperatorDef&, Workspace*, const KernelConfig*>))
  OperatorCreator(F create) {
    if constexpr (detail::CallableAs<F, Pointer, const OperatorDef&, Workspace*,
                                     const KernelConfig*>) {
      create_ = std::move(create);
    } else {
      create_ = [create = std::move(create)](const OperatorDef& def, Workspace* ws,
                                             const KernelConfig*) mutable -> Pointer {
        return create(def, ws);
      };
    }
  }
  // Defined with OperatorBase, which must be complete.
  Pointer operator()(const OperatorDef& def, Workspace* ws,
                     const KernelConfig* config = nullptr) const;
  explicit operator bool() const { return static_cast<bool>(create_); }

 private:
  mutable UniqueFunction<Pointer(const OperatorDef&, Workspace*, const KernelConfig*)> create_;
};
// The configurations for a node, best first. None, or an UnsupportedOperatorFeature that says why,
// where the kernel cannot run it.
using KernelProposer = UniqueFunction<std::vector<KernelConfig>(const KernelQuery&)>;

// A node with the configuration that was selected for it, and the node that alone reads its output
// 0, with its own.
struct FusionQuery {
  KernelQuery node;
  const KernelConfig& config;
  KernelQuery next;
  const KernelConfig& next_config;
  size_t read;  // the input of `next` that the node makes
};
// The two as one: a node of the outputs of `next` that reads inputs of both, for a kernel of the
// same backend, and the configuration that this runs it in. Nothing is selected anew, so layouts
// are those that were selected for the two.
struct FusedNode {
  OperatorDef def;
  KernelConfig config;
};
// How a kernel takes the next node in; nullopt where it cannot. Plans ask again with the result.
using KernelFuser = UniqueFunction<std::optional<FusedNode>(const FusionQuery&)>;

namespace detail {
struct TypedKernel;
using MakeTyped = std::unique_ptr<OperatorBase> (*)(const TypedKernel& kernel,
                                                    const OperatorDef& def, Workspace* ws);
}  // namespace detail

// Decides between two kernels of one (operator, device, backend): the higher priority is kept; two
// equal ones from two places are an error at first lookup.
enum class RegistrationPriority : uint8_t { kFallback = 1, kDefault = 2, kPreferred = 3 };

inline constexpr const char* kReferenceBackend = "reference";  // the plain operator

struct Kernel {
  std::string op;
  DeviceType device = DeviceType::kCPU;
  std::string backend = kReferenceBackend;
  RegistrationPriority priority = RegistrationPriority::kDefault;
  const char* file = "";
  int line = 0;
  std::string origin;  // the library it came from; empty for the program itself
  detail::IntrusivePtr<detail::RefCounted> owner;  // held by what may create from it later
  OperatorCreator create;  // may throw UnsupportedOperatorFeature: the next kernel is tried
  // In place of `create` for a typed operator: its record, and what makes an operator of it. The
  // second is null for CPUContext, for which CreateOperator knows it.
  const detail::TypedKernel* typed = nullptr;
  detail::MakeTyped make_typed = nullptr;
  bool leaves_state = false;  // a function operator's forward, for its node's backward
  // Empty: one configuration, standard layouts, in place as the schema says.
  mutable KernelProposer propose;
  // Whether a configuration may have other layouts than the standard one.
  bool proposes_layouts = false;
  // Empty: its nodes run one by one.
  mutable KernelFuser fuse;

  std::string Place() const { return StrCat(file, ":", line); }
};

// Thrown by an operator's constructor that cannot run this node; another kernel then gets it.
class OPKIT_EXPORT UnsupportedOperatorFeature : public Error {
 public:
  explicit UnsupportedOperatorFeature(std::string what)
      : Error(ErrorCode::kUnsupported, std::move(what)) {}
};

}  // namespace opkit

#endif  // OPKIT_OP_KERNEL_HPP_
