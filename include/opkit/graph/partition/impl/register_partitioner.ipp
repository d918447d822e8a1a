// The definitions of REGISTER_PARTITIONER: partitioners made of functions.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_REGISTER_PARTITIONER_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_REGISTER_PARTITIONER_IPP_

#include <algorithm>

#include "opkit/graph/partition/options.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/register_partitioner.hpp"
#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/op/boundary/host/resource_state.hpp"
#include "opkit/op/function/mx_failure.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The PartitionWork of a FunctionPartitioner.
class FunctionPartitionWork final : public PartitionWork {
 public:
  FunctionPartitionWork(IntrusivePtr<const FunctionPartitioner> partitioner,
                        const PartitionView& view, PartitionArguments arguments)
      : partitioner_(std::move(partitioner)), arguments_(std::move(arguments)) {
    const GraphPartitionerRecord& record = partitioner_->record;
    if (!record.make_selector) return;
    selector_ = record.make_selector(view, arguments_);
    if (!selector_) Throw(ErrorCode::kInvalidArgument, "setCreateSelector(f): f made no selector");
  }
  void Mark(PartitionAnswer& answer) override {
    if (selector_)
      MarkBySelector(*selector_, answer);
    else
      partitioner_->record.mark(answer, arguments_);
  }
  void Review(SubgraphReview& review) override {
    if (partitioner_->record.review) partitioner_->record.review(review, arguments_);
  }

 private:
  const IntrusivePtr<const FunctionPartitioner> partitioner_;
  const PartitionArguments arguments_;
  std::unique_ptr<SubgraphSelector> selector_;
};

OPKIT_INLINE std::string FunctionPartitioner::SubgraphOperator(int kind) const {
  return record.SubgraphOp(kind);
}
OPKIT_INLINE std::unique_ptr<PartitionWork> FunctionPartitioner::Begin(
    const PartitionView& view, const PartitionArguments& arguments) const {
  if (!record.reads_options && !arguments.empty())
    Throw(ErrorCode::kInvalidArgument, "it has no option '", arguments[0].first, "'",
          SuggestName(arguments[0].first, PartitionLimits::Names()),
          "; it has only the options that every partitioner has");
  return std::make_unique<FunctionPartitionWork>(IntrusivePtr<const FunctionPartitioner>(this),
                                                 view, arguments);
}
OPKIT_INLINE std::string FunctionPartitioner::problem() const {
  if (!record.problem.empty()) return record.problem;
  if (!record.mark && !record.make_selector)
    return "the partitioner does not say which nodes it takes: call setSupportedOps or "
           "setCreateSelector";
  if (record.mark && record.make_selector)
    return "the partitioner has both setSupportedOps and setCreateSelector; keep one";
  return {};
}

OPKIT_INLINE void MarkByJson(PartitionAnswer& answer, const PartitionArguments& arguments,
                             SupportedOpsFunction& function) {
  SymbolJson json = WriteSymbolJson(answer.view().structure(), answer.view().types());
  std::vector<int> ids(json.nodes.size(), kNotTaken);
  StringMapArgument options(arguments);
  CheckMxReturn("setSupportedOps' function", [&] { return function(json.text, ids, options); });
  if (ids.size() != json.nodes.size())
    Throw(ErrorCode::kInvalidArgument, "setSupportedOps' function answered ", ids.size(),
          " ids for ", json.nodes.size(), " nodes");
  for (size_t i = 0; i < ids.size(); ++i)
    if (json.nodes[i] >= 0 && ids[i] != kNotTaken) answer.Take(json.nodes[i], ids[i]);
}

OPKIT_INLINE void ReviewByJson(SubgraphReview& review, const PartitionArguments& arguments,
                               AcceptFunction& function) {
  const GraphView view(review.body());
  const GraphTypes types = InferGraph(view, {}, UnknownOperators::kAllowed);
  StringMapArgument options(arguments), attributes;
  TensorMapArgument::Items constants;
  std::vector<IntrusivePtr<TensorSlot>> slots;  // own the extents to which the views point
  for (const Graph::Constant& constant : review.body().constants()) {
    slots.push_back(MakeIntrusive<TensorSlot>());
    slots.back()->Bind(constant.value, OpReq::kWrite);
    constants.emplace_back(constant.name, slots.back()->view);
  }
  TensorMapArgument args(std::move(constants)), aux;
  bool accept = true;
  CheckMxReturn("setAcceptSubgraph's function", [&] {
    return function(WriteSymbolJson(view, types, review.IsArg()).text, review.id(), &accept,
                    options, attributes, args, aux);
  });
  if (!accept) return review.Reject("");
  PartitionArguments given = attributes.Read();
  std::sort(given.begin(), given.end());  // the map's order may be arbitrary
  for (const auto& [name, value] : given) review.SetAttribute(name, value);
}

OPKIT_INLINE GraphPartitionerHost::GraphPartitionerHost(const char* name, const char* file,
                                                        int line) noexcept
    : partitioner_(MakeIntrusive<FunctionPartitioner>()) {
  record().name = name;
  RegisterPartitioner(partitioner_, file, line);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PARTITION_IMPL_REGISTER_PARTITIONER_IPP_
