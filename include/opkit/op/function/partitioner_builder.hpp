// REGISTER_PARTITIONER: makes a partitioner of functions. They have the signatures of MXNet's
// loadable partitioners, which read JSON, or opkit's typed signatures, which read PartitionView and
// need opkit/partition.hpp. Both use one builder; its host is GraphPartitionerHost
// (graph/partition/register_partitioner.hpp) in a unit that includes opkit/partition.hpp, else
// LibraryPartitionerHost (plugin/export/library_partitioner.hpp).
#ifndef OPKIT_OP_FUNCTION_PARTITIONER_BUILDER_HPP_
#define OPKIT_OP_FUNCTION_PARTITIONER_BUILDER_HPP_

#include "opkit/macros.hpp"
#include "opkit/op/function/partition_signature.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The names that the setters of REGISTER_PARTITIONER store, without the functions.
struct PartitionerRecord {
  std::string name, problem, subgraph_op = "Subgraph";
  // Operators of the kinds that have their own.
  std::vector<std::pair<int, std::string>> subgraph_ops;

  // Returns the operator that replaces subgraphs of a kind.
  const std::string& SubgraphOp(int kind) const {
    for (size_t i = subgraph_ops.size(); i > 0; --i)  // the last call for the kind counts
      if (subgraph_ops[i - 1].first == kind) return subgraph_ops[i - 1].second;
    return subgraph_op;
  }
};

}  // namespace detail

// Sets the functions of a partitioner; REGISTER_PARTITIONER makes the builder. The setters accept
// functions, function pointers and lambdas. Several threads may call these functions. If no
// function takes the options, a request with an option of the partitioner is an Error
// (kInvalidArgument). Functions with MXNet's signatures return SUCCESS, or FAIL after
// OPKIT_ERROR_MSG. Typed functions return nothing and throw errors.
//
//   void supported(const PartitionView& view, PartitionAnswer& answer) {
//     for (const PartitionNode& node : view.nodes())
//       if (node.op() == "Exp" || node.op() == "Log") answer.Take(node);
//   }
//   REGISTER_PARTITIONER(myProp).setSupportedOps(supported).setSubgraphOp("_custom_subgraph_op");
//
// Host stores the functions: kTakesMark<F> and kTakesReview<F> are true for its typed signatures.
// Mark, Review and Selector convert a typed function, JsonMark and JsonReview one with MXNet's
// signature.
template <class Host>
class BasicPartitionerBuilder {
 public:
  BasicPartitionerBuilder(const char* name, const char* file, int line) : host_(name, file, line) {}

  // Sets the function that takes nodes. It is typed, as above, with PartitionArguments as an
  // optional third parameter; or it has MXNet's signature
  //   ReturnValue f(const std::string& json, std::vector<int>* ids,
  //                 const std::unordered_map<std::string, std::string>& options)
  // `ids` has a number for each node of the JSON (symbol_json.hpp). The initial -2 leaves the node
  // in the graph, -1 takes it, and a number from 0 on takes it as that kind. In older signatures
  // ids are flags, 1 or true for a node that is taken:
  //   ReturnValue f(std::string json, const int num_ids, int* ids, …& options)
  //   ReturnValue f(std::string json, std::vector<bool>& ids, …& options)
  // -1 and -2 keep their meaning in int* ids; any other number is an Error (kInvalidArgument).
  template <class F>
  BasicPartitionerBuilder& setSupportedOps(F f) {
    constexpr bool kTyped = Host::template kTakesMark<F>;
    static_assert(kTyped || detail::kFits<detail::SupportedOpsFunction, F>,
                  "setSupportedOps(f): write void f(const PartitionView& view, PartitionAnswer& "
                  "answer), which needs opkit/partition.hpp, or ReturnValue f(const std::string& "
                  "json, std::vector<int>* ids, const std::unordered_map<std::string, "
                  "std::string>& options)");
    if constexpr (kTyped)
      return Once(host_.record().mark, "setSupportedOps", host_.Mark(std::move(f)));
    else
      return Once(host_.record().mark, "setSupportedOps",
                  host_.JsonMark(detail::AdaptTo<detail::SupportedOpsFunction>(std::move(f))));
  }
  // Sets, instead of setSupportedOps, the function that makes the SubgraphSelector for a graph; it
  // needs opkit/partition.hpp:
  //   std::unique_ptr<SubgraphSelector> f(const PartitionView&, const PartitionArguments&).
  template <class F>
  BasicPartitionerBuilder& setCreateSelector(F make) {
    constexpr bool kFits = requires { host_.Selector(std::move(make)); };
    static_assert(kFits,
                  "setCreateSelector(f): write std::unique_ptr<SubgraphSelector> f(const "
                  "PartitionView& view, const PartitionArguments& options), which needs "
                  "opkit/partition.hpp");
    if constexpr (kFits)
      Once(host_.record().make_selector, "setCreateSelector", host_.Selector(std::move(make)));
    return *this;
  }
  // Sets the operator that replaces a subgraph, or subgraphs of one kind. The default is
  // "Subgraph", which runs the subgraph in the program.
  BasicPartitionerBuilder& setSubgraphOp(std::string op) {
    host_.record().subgraph_op = std::move(op);
    return *this;
  }
  BasicPartitionerBuilder& setSubgraphOp(std::string op, int kind) {
    host_.record().subgraph_ops.emplace_back(kind, std::move(op));
    return *this;
  }
  // Sets the function that accepts or rejects every legal subgraph: void f(SubgraphReview&), with
  // PartitionArguments as an optional second parameter, or MXNet's
  //   ReturnValue f(const std::string& json, int subgraph_id, bool* accept,
  //                 const std::unordered_map<std::string, std::string>& options,
  //                 std::unordered_map<std::string, std::string>* attrs,
  //                 const std::unordered_map<std::string, OpTensor>& args,
  //                 const std::unordered_map<std::string, OpTensor>& aux)
  // or the first four or five of them. `attrs` become attributes of the operator; `args` are the
  // constants of the subgraph; `aux` is empty. A map may be a std::map.
  template <class F>
  BasicPartitionerBuilder& setAcceptSubgraph(F f) {
    constexpr bool kTyped = Host::template kTakesReview<F>;
    static_assert(kTyped || detail::kFits<detail::AcceptFunction, F>,
                  "setAcceptSubgraph(f): write void f(SubgraphReview& review), which needs "
                  "opkit/partition.hpp, or ReturnValue f(const std::string& json, int subgraph_id, "
                  "bool* accept, const std::unordered_map<std::string, std::string>& options)");
    if constexpr (kTyped)
      return Once(host_.record().review, "setAcceptSubgraph", host_.Review(std::move(f)));
    else
      return Once(host_.record().review, "setAcceptSubgraph",
                  host_.JsonReview(detail::AdaptTo<detail::AcceptFunction>(std::move(f))));
  }
  // Does the same as setAcceptSubgraph: later versions of MXNet have this name.
  template <class F>
  BasicPartitionerBuilder& setReviewSubgraph(F f) {
    return setAcceptSubgraph(std::move(f));
  }

 private:
  // Stores a function; a second call of the same setter is a problem of the registration.
  template <class Function>
  BasicPartitionerBuilder& Once(Function& slot, const char* setter, Function f) {
    if (slot)
      host_.record().problem = StrCat(setter, " is called twice");
    else
      slot = std::move(f);
    return *this;
  }

  Host host_;
};

}}  // namespace opkit

// Registers a partitioner at namespace scope: REGISTER_PARTITIONER(myProp).setSupportedOps(…)…;
#undef OPKIT_REGISTER_PARTITIONER  // the sentence of not_included.hpp
#define OPKIT_REGISTER_PARTITIONER(name)                                               \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_PARTITIONER);                                      \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_partitioner_) =                \
      ::opkit::BasicPartitionerBuilder<decltype(::opkit::detail::PartitionerHost(0))>( \
          #name, __FILE__, __LINE__)

#endif  // OPKIT_OP_FUNCTION_PARTITIONER_BUILDER_HPP_
