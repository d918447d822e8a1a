// InferenceChecker: compares the dtypes and shapes that a schema infers with those that a kernel
// writes. For the definitions of op/check.hpp.
#ifndef OPKIT_OP_CHECK_CHECK_INFERENCE_HPP_
#define OPKIT_OP_CHECK_CHECK_INFERENCE_HPP_

#include "opkit/op/check/check_session.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class InferenceChecker {
 public:
  explicit InferenceChecker(CheckSession& session) : session_(session) {}

  // Whether the schema infers outputs from the inputs in use.
  bool Accepts() const {
    if (!session_.schema.has_inference()) return false;
    try {
      session_.schema.InferOutputs(session_.def, Infos(false));
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  void Check(const std::vector<Tensor>& outputs) {
    if (!session_.schema.has_inference()) return;
    for (const bool symbolic : {false, true}) {
      std::vector<TensorInfo> infos;
      try {
        infos = session_.schema.InferOutputs(session_.def, Infos(symbolic));
        if (!symbolic) static_cast<void>(session_.schema.Cost(session_.def, Infos(false), infos));
      } catch (const std::exception& error) {
        const auto* known = dynamic_cast<const Error*>(&error);
        session_.Find("inference",
                      StrCat(symbolic ? "inference fails on symbolic extents (ask is_known(), or "
                                        "declare NeedsAllInputShapes): "
                                      : "inference or cost fails on inputs that the kernel runs: ",
                             known ? known->message() : error.what()));
        return;
      }
      for (size_t o = 0; o < outputs.size() && o < infos.size(); ++o) {
        const bool dtype_differs =
            infos[o].dtype != DType::kUndefined && infos[o].dtype != outputs[o].dtype();
        if (!dtype_differs && SymbolicShape::Merge(infos[o].shape, outputs[o].shape())) continue;
        session_.Find(
            StrCat("shape ", o),
            StrCat(session_.OutputName(o), ": inference says ", infos[o], ", the kernel wrote ",
                   outputs[o].dtype(), ToString(outputs[o].shape())));
      }
    }
  }

 private:
  std::vector<TensorInfo> Infos(bool symbolic) const {
    std::vector<TensorInfo> out;
    for (size_t i = 0; i < session_.tested->inputs.size(); ++i) {
      const Tensor& input = session_.tested->inputs[i];
      TensorInfo info = TensorInfo::Of(input, !symbolic && input.initialized());
      for (int axis = 0; symbolic && axis < input.rank(); ++axis)
        info.shape[axis] = Sym(StrCat("N", i, "_", axis));
      out.push_back(std::move(info));
    }
    return out;
  }

  CheckSession& session_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CHECK_CHECK_INFERENCE_HPP_
