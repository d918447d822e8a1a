// REGISTER_PARTITIONER: makes a partitioner of functions. They have the signatures of MXNet's
// loadable partitioners, which read JSON, or opkit's typed signatures, which read PartitionView.
#ifndef OPKIT_GRAPH_PARTITION_REGISTER_PARTITIONER_HPP_
#define OPKIT_GRAPH_PARTITION_REGISTER_PARTITIONER_HPP_

#include <map>

#include "opkit/base/unique_function.hpp"
#include "opkit/graph/partition/selector.hpp"
#include "opkit/macros.hpp"
#include "opkit/op/function/partition_signature.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// opkit's typed signatures of a partitioner's functions.
template <class F>
concept TypedSupportedOps = std::is_invocable_v<F&, const PartitionView&, PartitionAnswer&>;
template <class F>
concept TypedSupportedOpsWithOptions =
    std::is_invocable_v<F&, const PartitionView&, PartitionAnswer&, const PartitionArguments&>;
template <class F>
concept TypedReview = std::is_invocable_v<F&, SubgraphReview&>;
template <class F>
concept TypedReviewWithOptions =
    std::is_invocable_v<F&, SubgraphReview&, const PartitionArguments&>;

// The functions and names that the setters of REGISTER_PARTITIONER store.
struct PartitionerRecord {
  using Mark = UniqueFunction<void(PartitionAnswer&, const PartitionArguments&)>;
  using MakeSelector = UniqueFunction<std::unique_ptr<SubgraphSelector>(const PartitionView&,
                                                                        const PartitionArguments&)>;
  using Review = UniqueFunction<void(SubgraphReview&, const PartitionArguments&)>;

  std::string name, problem, subgraph_op = "Subgraph";
  std::map<int, std::string> subgraph_ops;  // by kind; subgraph_op for other kinds
  bool reads_options = false;               // a function takes the options
  mutable Mark mark;                        // mutable: const members call these functions
  mutable MakeSelector make_selector;
  mutable Review review;
};

// The partitioner of a REGISTER_PARTITIONER.
class FunctionPartitioner final : public Partitioner {
 public:
  const std::string& name() const override { return record.name; }
  OPKIT_INLINE std::string SubgraphOperator(int kind) const override;
  OPKIT_INLINE std::unique_ptr<PartitionWork> Begin(
      const PartitionView& view, const PartitionArguments& arguments) const override;
  OPKIT_INLINE std::string problem() const override;

  PartitionerRecord record;
};

// A function with MXNet's signature. MarkByJson and ReviewByJson write the graph as JSON, call such
// a function and apply its results.
using SupportedOpsCall =
    FunctionRef<MXReturnValue(std::string, std::vector<int>&, StringMapArgument&)>;
using AcceptCall =
    FunctionRef<MXReturnValue(std::string, int, bool*, StringMapArgument&, StringMapArgument&,
                              TensorMapArgument&, TensorMapArgument&)>;
void MarkByJson(PartitionAnswer& answer, const PartitionArguments& arguments,
                SupportedOpsCall call);
void ReviewByJson(SubgraphReview& review, const PartitionArguments& arguments, AcceptCall call);

}  // namespace detail

// Sets the functions of a partitioner; REGISTER_PARTITIONER makes the builder. The setters accept
// functions, function pointers and lambdas. Several threads may call these. If none of them takes
// the options, a request with a partitioner's own option is an Error (kInvalidArgument). Functions
// with MXNet's signatures return MX_SUCCESS, or MX_FAIL after OPKIT_ERROR_MSG. Typed functions
// return nothing and throw errors.
//
//   void supported(const PartitionView& view, PartitionAnswer& answer) {
//     for (const PartitionNode& node : view.nodes())
//       if (node.op() == "Exp" || node.op() == "Log") answer.Take(node);
//   }
//   REGISTER_PARTITIONER(myProp).setSupportedOps(supported).setSubgraphOp("_custom_subgraph_op");
class PartitionerBuilder {
 public:
  OPKIT_INLINE PartitionerBuilder(const char* name, const char* file, int line) noexcept;

  // Sets the function that takes nodes. It is typed, as above, with PartitionArguments as an
  // optional third parameter; or it has MXNet's signature
  //   MXReturnValue f(std::string json, const int num_ids, int* ids,
  //                   std::unordered_map<std::string, std::string>& options)
  // or the same with std::vector<int>& ids. `ids` has a number for each node of the JSON
  // (symbol_json.hpp). The initial -2 leaves the node in the graph, -1 takes it, and a number from
  // 0 on takes it as that kind. With int* ids, 0 also leaves the node, as in MXNet 1.7.
  template <class F>
  PartitionerBuilder& setSupportedOps(F f) {
    static_assert(detail::SupportedOpsOfJson<F> || detail::SupportedOpsOfVector<F> ||
                      detail::TypedSupportedOps<F> || detail::TypedSupportedOpsWithOptions<F>,
                  "setSupportedOps(f): write void f(const PartitionView& view, PartitionAnswer& "
                  "answer), or MXReturnValue f(std::string json, const int num_ids, int* ids, "
                  "std::unordered_map<std::string, std::string>& options)");
    record().reads_options |=
        detail::TypedSupportedOpsWithOptions<F> || !detail::TypedSupportedOps<F>;
    if constexpr (detail::TypedSupportedOpsWithOptions<F>)
      return SetMark([f](PartitionAnswer& answer, const PartitionArguments& arguments) mutable {
        f(answer.view(), answer, arguments);
      });
    else if constexpr (detail::TypedSupportedOps<F>)
      return SetMark([f](PartitionAnswer& answer, const PartitionArguments&) mutable {
        f(answer.view(), answer);
      });
    else
      return SetMark([f](PartitionAnswer& answer, const PartitionArguments& arguments) mutable {
        detail::MarkByJson(
            answer, arguments,
            [&f](std::string json, std::vector<int>& ids, detail::StringMapArgument& options) {
              return detail::CallSupportedOps(f, std::move(json), ids, options);
            });
      });
  }
  // Sets, instead of setSupportedOps, the function that makes the SubgraphSelector for a graph:
  //   std::unique_ptr<SubgraphSelector> f(const PartitionView&, const PartitionArguments&).
  PartitionerBuilder& setCreateSelector(detail::PartitionerRecord::MakeSelector make) {
    record().reads_options = true;
    return Once(record().make_selector, "setCreateSelector", std::move(make));
  }
  // Sets the operator that replaces a subgraph, or subgraphs of one kind. The default is
  // "Subgraph", which runs the subgraph in the program.
  PartitionerBuilder& setSubgraphOp(std::string op) {
    record().subgraph_op = std::move(op);
    return *this;
  }
  PartitionerBuilder& setSubgraphOp(std::string op, int kind) {
    record().subgraph_ops[kind] = std::move(op);
    return *this;
  }
  // Sets the function that accepts or rejects every subgraph: void f(SubgraphReview&), with
  // PartitionArguments as an optional second parameter, or MXNet's
  //   MXReturnValue f(std::string json, int subgraph_id, bool* accept,
  //                   std::unordered_map<std::string, std::string>& options,
  //                   std::unordered_map<std::string, std::string>& attrs,
  //                   std::map<std::string, MXTensor>& args, std::map<std::string, MXTensor>& aux)
  // or the first four or five of them. `attrs` become attributes of the operator; `args` are the
  // constants of the subgraph; `aux` is empty.
  template <class F>
  PartitionerBuilder& setAcceptSubgraph(F f) {
    static_assert(
        detail::TypedReview<F> || detail::TypedReviewWithOptions<F> || detail::AcceptOfJson<F> ||
            detail::AcceptWithAttributes<F> || detail::AcceptWithTensors<F>,
        "setAcceptSubgraph(f): write void f(SubgraphReview& review), or MXReturnValue "
        "f(std::string json, int subgraph_id, bool* accept, std::unordered_map<std::string, "
        "std::string>& options)");
    record().reads_options |= detail::TypedReviewWithOptions<F> || !detail::TypedReview<F>;
    if constexpr (detail::TypedReviewWithOptions<F>)
      return Once(record().review, "setAcceptSubgraph",
                  detail::PartitionerRecord::Review(std::move(f)));
    else if constexpr (detail::TypedReview<F>)
      return Once(
          record().review, "setAcceptSubgraph",
          detail::PartitionerRecord::Review(
              [f](SubgraphReview& review, const PartitionArguments&) mutable { f(review); }));
    else
      return Once(
          record().review, "setAcceptSubgraph",
          detail::PartitionerRecord::Review(
              [f](SubgraphReview& review, const PartitionArguments& arguments) mutable {
                detail::ReviewByJson(
                    review, arguments,
                    [&f](std::string json, int id, bool* accept, detail::StringMapArgument& options,
                         detail::StringMapArgument& attrs, detail::TensorMapArgument& args,
                         detail::TensorMapArgument& aux) {
                      return detail::CallAcceptSubgraph(f, std::move(json), id, accept, options,
                                                        attrs, args, aux);
                    });
              }));
  }
  // Does the same as setAcceptSubgraph, which is the older name.
  template <class F>
  PartitionerBuilder& setReviewSubgraph(F f) {
    return setAcceptSubgraph(std::move(f));
  }

 private:
  detail::PartitionerRecord& record() { return partitioner_->record; }
  PartitionerBuilder& SetMark(detail::PartitionerRecord::Mark mark) {
    return Once(record().mark, "setSupportedOps", std::move(mark));
  }
  // Stores a function; a second call of the same setter is a problem of the registration.
  template <class Function>
  PartitionerBuilder& Once(Function& slot, const char* setter, Function f) {
    if (slot)
      record().problem = StrCat(setter, " is called twice");
    else
      slot = std::move(f);
    return *this;
  }

  detail::IntrusivePtr<detail::FunctionPartitioner> partitioner_;
};

}}  // namespace opkit

// Registers a partitioner: REGISTER_PARTITIONER(myProp).setSupportedOps(…)…; at namespace scope, in
// a program or in a library that includes opkit/partition.hpp. In a library without that header,
// the macro has no typed forms (plugin/author.hpp).
#undef OPKIT_REGISTER_PARTITIONER
#define OPKIT_REGISTER_PARTITIONER(name)                                                       \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_PARTITIONER);                                              \
  [[maybe_unused]] static const ::opkit::PartitionerBuilder OPKIT_UNIQUE(opkit_partitioner_) = \
      ::opkit::PartitionerBuilder(#name, __FILE__, __LINE__)

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/register_partitioner.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_REGISTER_PARTITIONER_HPP_
