// REGISTER_PARTITIONER: partitioners made of functions, in the spelling that MXNet's loadable
// partitioners have, or over the typed view.
#ifndef OPKIT_GRAPH_PARTITION_REGISTER_PARTITIONER_HPP_
#define OPKIT_GRAPH_PARTITION_REGISTER_PARTITIONER_HPP_

#include <map>

#include "opkit/base/unique_function.hpp"
#include "opkit/graph/partition/selector.hpp"
#include "opkit/macros.hpp"
#include "opkit/op/function/partition_signature.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The toolkit's.
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

// What REGISTER_PARTITIONER's setters fill in.
struct PartitionerRecord {
  using Mark = UniqueFunction<void(PartitionAnswer&, const PartitionArguments&)>;
  using MakeSelector = UniqueFunction<std::unique_ptr<SubgraphSelector>(const PartitionView&,
                                                                        const PartitionArguments&)>;
  using Review = UniqueFunction<void(SubgraphReview&, const PartitionArguments&)>;

  std::string name, problem, subgraph_op = "Subgraph";
  std::map<int, std::string> subgraph_ops;  // by kind, where it has its own
  bool reads_options = false;               // one of its functions gets them
  mutable Mark mark;                        // called from const members; keep no state
  mutable MakeSelector make_selector;
  mutable Review review;
};

class FunctionPartitioner final : public Partitioner {
 public:
  const std::string& name() const override { return record.name; }
  OPKIT_INLINE std::string SubgraphOperator(int kind) const override;
  OPKIT_INLINE std::unique_ptr<PartitionWork> Begin(
      const PartitionView& view, const PartitionArguments& arguments) const override;
  OPKIT_INLINE std::string problem() const override;

  PartitionerRecord record;
};

// The bridge from MXNet's signatures.
using SupportedOpsCall =
    FunctionRef<MXReturnValue(std::string, std::vector<int>&, StringMapArgument&)>;
using AcceptCall =
    FunctionRef<MXReturnValue(std::string, int, bool*, StringMapArgument&, StringMapArgument&,
                              TensorMapArgument&, TensorMapArgument&)>;
void MarkByJson(PartitionAnswer& answer, const PartitionArguments& arguments,
                SupportedOpsCall call);
void ReviewByJson(SubgraphReview& review, const PartitionArguments& arguments, AcceptCall call);

}  // namespace detail

// Fills in a partitioner; made by REGISTER_PARTITIONER. A function may be a function, a function
// pointer or a lambda; it may be called on several threads. Where none of them gets the options, an
// option that is not the toolkit's is an Error. MXNet's answers are MX_SUCCESS and
// MX_FAIL (OPKIT_ERROR_MSG says why); the typed forms throw, or answer nothing.
//
//   void supported(const PartitionView& view, PartitionAnswer& answer) {
//     for (const PartitionNode& node : view.nodes())
//       if (node.op() == "Exp" || node.op() == "Log") answer.Take(node);
//   }
//   REGISTER_PARTITIONER(myProp).setSupportedOps(supported).setSubgraphOp("_custom_subgraph_op");
class PartitionerBuilder {
 public:
  OPKIT_INLINE PartitionerBuilder(const char* name, const char* file, int line) noexcept;

  // Says which nodes are taken. Over the typed view, as above, with the options as a third argument
  // where it wants them; or MXNet's
  //   MXReturnValue f(std::string json, const int num_ids, int* ids,
  //                   std::unordered_map<std::string, std::string>& options)
  // or the same with std::vector<int>& ids: one for each node of the JSON (symbol_json.hpp), -2 at
  // first: left alone. -1 takes the node, a number from 0 on takes it for a kind of its own; with
  // int* ids 0 leaves it alone too, as in MXNet 1.7.
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
  // Instead of setSupportedOps: makes the SubgraphSelector for a graph,
  //   std::unique_ptr<SubgraphSelector> f(const PartitionView&, const PartitionArguments&).
  PartitionerBuilder& setCreateSelector(detail::PartitionerRecord::MakeSelector make) {
    record().reads_options = true;
    return Once(record().make_selector, "setCreateSelector", std::move(make));
  }
  // The operator that takes a subgraph's place; "Subgraph", which runs it in the program, where it
  // is not called. With a kind: for subgraphs of that kind alone.
  PartitionerBuilder& setSubgraphOp(std::string op) {
    record().subgraph_op = std::move(op);
    return *this;
  }
  PartitionerBuilder& setSubgraphOp(std::string op, int kind) {
    record().subgraph_ops[kind] = std::move(op);
    return *this;
  }
  // Looks at every legal subgraph: void f(SubgraphReview&), with the options as a second argument
  // where it wants them, or MXNet's
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
  // The later name of setAcceptSubgraph.
  template <class F>
  PartitionerBuilder& setReviewSubgraph(F f) {
    return setAcceptSubgraph(std::move(f));
  }

 private:
  detail::PartitionerRecord& record() { return partitioner_->record; }
  PartitionerBuilder& SetMark(detail::PartitionerRecord::Mark mark) {
    return Once(record().mark, "setSupportedOps", std::move(mark));
  }
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

}  // namespace opkit

// REGISTER_PARTITIONER(myProp).setSupportedOps(…)…; at namespace scope, in a program or in a
// library that includes opkit/partition.hpp. A library without it has a smaller one, without the
// typed forms.
#undef OPKIT_REGISTER_PARTITIONER
#define OPKIT_REGISTER_PARTITIONER(name)                                                       \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_PARTITIONER);                                              \
  [[maybe_unused]] static const ::opkit::PartitionerBuilder OPKIT_UNIQUE(opkit_partitioner_) = \
      ::opkit::PartitionerBuilder(#name, __FILE__, __LINE__)

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/register_partitioner.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_REGISTER_PARTITIONER_HPP_
