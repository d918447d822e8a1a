// MxnetPartitioner: runs a partitioner of a library for MXNet as a Partitioner of this program.
#ifndef OPKIT_INTEROP_MXNET_PARTITIONER_HPP_
#define OPKIT_INTEROP_MXNET_PARTITIONER_HPP_

#include <cstring>
#include <map>

#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/selector.hpp"
#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/interop/mxnet/values.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The constants of a graph, as MXNet's functions read them. A library may write to them, so that
// they are copies. A constant of a dtype that MXNet does not have is left out.
class MxnetNamedTensors {
 public:
  explicit MxnetNamedTensors(const Graph& graph) : graph_(graph) {
    for (const Graph::Constant& constant : graph.constants()) {
      if (!HasMxnetType(constant.value.dtype())) continue;
      Tensor& copy = copies_.emplace_back();
      copy.CopyFrom(constant.value);
      names_.push_back(constant.name.c_str());
      shapes_.emplace_back(copy.shape().begin(), copy.shape().end());
      tensors_.Add(nullptr, static_cast<int>(copy.shape().rank()),
                   MxnetTypeOf(static_cast<int32_t>(copy.dtype())), copy.raw_mutable_data(), "cpu",
                   0, 1);
    }
    for (size_t i = 0; i < shapes_.size(); ++i) tensors_.shapes[i] = shapes_[i].data();
  }
  // Calls call(names, count, data, …) with the parameters of two lists of named tensors: the
  // arguments, and the auxiliary states, of which a graph has none here.
  template <class Call>
  auto Apply(Call call) {
    return call(names_.data(), tensors_.size(), tensors_.data.data(), tensors_.shapes.data(),
                tensors_.ranks.data(), tensors_.types.data(), tensors_.versions.data(),
                tensors_.devices.data(), tensors_.device_ids.data(), nullptr, 0, nullptr, nullptr,
                nullptr, nullptr, nullptr, nullptr, nullptr);
  }
  // Returns the constants to which the library has written, with their new elements.
  std::vector<std::pair<std::string, Tensor>> Changed() const {
    std::vector<std::pair<std::string, Tensor>> changed;
    for (size_t i = 0; i < copies_.size(); ++i) {
      const Tensor &now = copies_[i], &own = *graph_.FindConstant(names_[i]);
      const Tensor original = own.is_dense() ? own : own.Contiguous();
      if (now.nbytes() > 0 &&
          std::memcmp(original.raw_data(), now.raw_data(), Index(now.nbytes())) != 0)
        changed.emplace_back(names_[i], now);
    }
    return changed;
  }

 private:
  const Graph& graph_;
  std::vector<Tensor> copies_;
  std::vector<const char*> names_;
  std::vector<MxnetShape> shapes_;
  MxnetTensors tensors_;
};

inline void ReadMxnetOptions(const PartitionArguments& options, MxnetTextMap& to) {
  for (const auto& [key, value] : options) to.Add(key, value);
  to.Finish();
}

// A strategy of a partitioner: the functions that take nodes and review subgraphs, and the operator
// that replaces a subgraph.
struct MxnetStrategy {
  std::string name, subgraph_op;
  MxnetFunction supported_ops = nullptr, create_selector = nullptr, review = nullptr;
};

// A selector that the library made for one graph. MXNet has no function that destroys it.
class MxnetSelector final : public SubgraphSelector {
 public:
  // `numbers` has the number in `json` of each node of the view.
  MxnetSelector(const MxnetApi& api, const MxnetStrategy& strategy, const PartitionView& view,
                const std::string& json, std::vector<int> numbers, const MxnetTextMap& options)
      : api_(api), numbers_(std::move(numbers)) {
    for (const PartitionNode& node : view.nodes()) nodes_.emplace(Number(node), node);
    api_.Run([&] {
      return api_->part_call_create_selector(strategy.create_selector, json.c_str(), &selector_,
                                             options.keys(), options.values(), options.size());
    });
    if (!selector_)
      Throw(ErrorCode::kOperatorFailed, "createSelector succeeded but made no selector");
  }
  bool Select(const PartitionNode& node) override {
    int yes = 0;
    api_.RunVoid([&] { api_->part_call_select(selector_, Number(node), &yes); });
    return yes != 0;
  }
  bool SelectInput(const PartitionNode& node, const PartitionNode& input) override {
    int yes = 0;
    api_.RunVoid(
        [&] { api_->part_call_select_input(selector_, Number(node), Number(input), &yes); });
    return yes != 0;
  }
  bool SelectOutput(const PartitionNode& node, const PartitionNode& output) override {
    int yes = 0;
    api_.RunVoid(
        [&] { api_->part_call_select_output(selector_, Number(node), Number(output), &yes); });
    return yes != 0;
  }
  std::vector<PartitionNode> Filter(const std::vector<PartitionNode>& candidates) override {
    std::vector<int> all;
    for (const PartitionNode& node : candidates) all.push_back(Number(node));
    int *keep = nullptr, count = 0;
    api_.RunVoid([&] {
      api_->part_call_filter(selector_, all.data(), static_cast<int>(all.size()), &keep, &count);
    });
    const std::vector<int> kept(keep, keep + (keep ? (std::max)(0, count) : 0));
    if (keep) api_.Free(keep);
    std::vector<PartitionNode> nodes;
    for (const int number : kept) {
      const auto node = nodes_.find(number);
      if (node == nodes_.end())
        Throw(ErrorCode::kInvalidArgument, "the selector's filter keeps node ", number,
              ", which the graph does not have");
      nodes.push_back(node->second);
    }
    return nodes;
  }
  void Reset() override {
    api_.RunVoid([&] { api_->part_call_reset(selector_); });
  }

 private:
  int Number(const PartitionNode& node) const { return numbers_[Index(node.index())]; }

  const MxnetApi& api_;
  void* selector_ = nullptr;
  const std::vector<int> numbers_;
  std::map<int, PartitionNode> nodes_;  // by number in the JSON
};

// The run of one strategy on one graph.
class MxnetPartitionWork final : public PartitionWork {
 public:
  MxnetPartitionWork(const MxnetApi& api, const MxnetStrategy& strategy,
                     const PartitionArguments& options)
      : api_(api), strategy_(strategy) {
    ReadMxnetOptions(options, options_);
  }

  void Mark(PartitionAnswer& answer) override {
    const PartitionView& view = answer.view();
    const SymbolJson symbols = WriteSymbolJson(view.structure(), view.types());
    const std::string json = ToMxnetJson(symbols.text);
    if (strategy_.create_selector) {
      std::vector<int> numbers(Index(view.num_nodes()), -1);
      for (size_t i = 0; i < symbols.nodes.size(); ++i)
        if (symbols.nodes[i] >= 0) numbers[Index(symbols.nodes[i])] = static_cast<int>(i);
      MxnetSelector selector(api_, strategy_, view, json, std::move(numbers), options_);
      return MarkBySelector(selector, answer);
    }
    std::vector<int> ids(symbols.nodes.size(), kNotTaken);
    api_.Run([&] {
      return api_->part_call_supported_ops(strategy_.supported_ops, json.c_str(),
                                           static_cast<int>(ids.size()), ids.data(),
                                           options_.keys(), options_.values(), options_.size());
    });
    for (size_t i = 0; i < ids.size(); ++i)
      if (symbols.nodes[i] >= 0 && ids[i] != kNotTaken) answer.Take(symbols.nodes[i], ids[i]);
  }

  void Review(SubgraphReview& review) override {
    if (!strategy_.review) return;
    const GraphView view(review.body());
    const GraphTypes types = InferGraph(view, {}, UnknownOperators::kAllowed);
    const std::string json = ToMxnetJson(WriteSymbolJson(view, types, review.IsArg()).text);
    MxnetNamedTensors tensors(review.body());
    int accept = 1, count = 0;
    char **keys = nullptr, **values = nullptr;
    api_.Run([&] {
      return tensors.Apply([&](auto... named) {
        return api_->part_call_review_subgraph(strategy_.review, json.c_str(), review.id(), &accept,
                                               options_.keys(), options_.values(), options_.size(),
                                               &keys, &values, &count, named...);
      });
    });
    const std::vector<std::pair<std::string, std::string>> attributes =
        TakeAttributes(keys, values, count);
    if (!accept) return review.Reject("");
    if (const auto changed = tensors.Changed(); !changed.empty())
      Throw(ErrorCode::kUnsupported, "reviewSubgraph writes to parameter '", changed[0].first,
            "'; a pass may change parameters, a review may not");
    for (const auto& [key, value] : attributes) review.SetAttribute(key, value);
  }

 private:
  // Copies the attributes of a review, sorted by name, and frees the library's memory.
  std::vector<std::pair<std::string, std::string>> TakeAttributes(char** keys, char** values,
                                                                  int count) const {
    std::vector<std::pair<std::string, std::string>> attributes;
    if (count <= 0 || !keys || !values) return attributes;
    for (int i = 0; i < count; ++i) {
      if (keys[i] && values[i]) attributes.emplace_back(keys[i], values[i]);
      for (char* const text : {keys[i], values[i]})
        if (text) api_.Free(text);
    }
    api_.Free(keys);
    api_.Free(values);
    std::ranges::sort(attributes);
    return attributes;
  }

  const MxnetApi& api_;
  const MxnetStrategy& strategy_;
  MxnetTextMap options_;
};

// A partitioner with one strategy.
class MxnetPartitioner final : public Partitioner {
 public:
  MxnetPartitioner(const MxnetApi& api, std::string name, MxnetStrategy strategy)
      : api_(api), name_(std::move(name)), strategy_(std::move(strategy)) {}
  const std::string& name() const override { return name_; }
  std::string SubgraphOperator(int) const override { return strategy_.subgraph_op; }
  std::unique_ptr<PartitionWork> Begin(const PartitionView&,
                                       const PartitionArguments& arguments) const override {
    return std::make_unique<MxnetPartitionWork>(api_, strategy_, arguments);
  }

 private:
  const MxnetApi& api_;
  const std::string name_;
  const MxnetStrategy strategy_;
};

// Reads the partitioners of a library. One with several strategies becomes a partitioner for each
// of them, "name.strategy".
inline std::vector<IntrusivePtr<const Partitioner>> ReadMxnetPartitioners(const MxnetApi& api) {
  std::vector<IntrusivePtr<const Partitioner>> all;
  const int num = api.Count(api->part_reg_size(), "partitioners");
  for (int i = 0; i < num; ++i) {
    const char* name = nullptr;
    const int strategies = api.Count(api->part_reg_get_count(i, &name), "strategies");
    if (!name || !*name)
      Throw(ErrorCode::kInvalidArgument, "library ", api.name(), " gives partitioner ", i,
            " no name");
    for (int s = 0; s < strategies; ++s) {
      const char *strategy = nullptr, *op = nullptr;
      MxnetStrategy read;
      api->part_reg_get(i, s, &strategy, &read.supported_ops, &read.create_selector, &read.review,
                        &op);
      read.name = strategy ? strategy : "";
      const std::string full = strategies == 1 ? name : StrCat(name, ".", read.name);
      if (!op || !*op || (!read.supported_ops && !read.create_selector))
        Throw(ErrorCode::kInvalidArgument, "library ", api.name(), " has partitioner ", full,
              " without ",
              op && *op ? "setSupportedOps or setCreateSelector" : "the operator of its subgraphs");
      read.subgraph_op = op;
      all.push_back(MakeIntrusive<MxnetPartitioner>(api, full, std::move(read)));
    }
  }
  return all;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_PARTITIONER_HPP_
