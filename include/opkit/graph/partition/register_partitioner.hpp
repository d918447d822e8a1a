// Host of REGISTER_PARTITIONER in a unit that includes opkit/partition.hpp: the functions have
// opkit's typed signatures or MXNet's, and this image's PartitionerRegistry has the partitioner.
#ifndef OPKIT_GRAPH_PARTITION_REGISTER_PARTITIONER_HPP_
#define OPKIT_GRAPH_PARTITION_REGISTER_PARTITIONER_HPP_

#include "opkit/base/unique_function.hpp"
#include "opkit/graph/partition/selector.hpp"
#include "opkit/op/function/partitioner_builder.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

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

// The functions that the setters of REGISTER_PARTITIONER store. Mutable: const members call them.
struct GraphPartitionerRecord : PartitionerRecord {
  using MarkFunction = UniqueFunction<void(PartitionAnswer&, const PartitionArguments&)>;
  using SelectorFunction = UniqueFunction<std::unique_ptr<SubgraphSelector>(
      const PartitionView&, const PartitionArguments&)>;
  using ReviewFunction = UniqueFunction<void(SubgraphReview&, const PartitionArguments&)>;

  bool reads_options = false;  // a function takes the options
  mutable MarkFunction mark;
  mutable SelectorFunction make_selector;
  mutable ReviewFunction review;
};

// The partitioner that REGISTER_PARTITIONER makes of functions.
class FunctionPartitioner final : public Partitioner {
 public:
  const std::string& name() const override { return record.name; }
  OPKIT_INLINE std::string SubgraphOperator(int kind) const override;
  OPKIT_INLINE std::unique_ptr<PartitionWork> Begin(
      const PartitionView& view, const PartitionArguments& arguments) const override;
  OPKIT_INLINE std::string problem() const override;

  GraphPartitionerRecord record;
};

// Write the graph as JSON, call a function with MXNet's signature, and apply its results.
void MarkByJson(PartitionAnswer& answer, const PartitionArguments& arguments,
                SupportedOpsFunction& function);
void ReviewByJson(SubgraphReview& review, const PartitionArguments& arguments,
                  AcceptFunction& function);

// The Host of a BasicPartitionerBuilder: converts the functions for the record, and adds the
// partitioner to the registry.
class GraphPartitionerHost {
 public:
  template <class F>
  static constexpr bool kTakesMark = TypedSupportedOps<F> || TypedSupportedOpsWithOptions<F>;
  template <class F>
  static constexpr bool kTakesReview = TypedReview<F> || TypedReviewWithOptions<F>;

  OPKIT_INLINE GraphPartitionerHost(const char* name, const char* file, int line) noexcept;
  GraphPartitionerRecord& record() { return partitioner_->record; }

  template <class F>
  GraphPartitionerRecord::MarkFunction Mark(F f) {
    record().reads_options |= TypedSupportedOpsWithOptions<F>;
    return
        [f](PartitionAnswer& answer, [[maybe_unused]] const PartitionArguments& arguments) mutable {
          if constexpr (TypedSupportedOpsWithOptions<F>)
            f(answer.view(), answer, arguments);
          else
            f(answer.view(), answer);
        };
  }
  GraphPartitionerRecord::MarkFunction JsonMark(SupportedOpsFunction f) {
    record().reads_options = true;
    return
        [f = std::move(f)](PartitionAnswer& answer, const PartitionArguments& arguments) mutable {
          MarkByJson(answer, arguments, f);
        };
  }
  GraphPartitionerRecord::SelectorFunction Selector(GraphPartitionerRecord::SelectorFunction make) {
    record().reads_options = true;
    return make;
  }
  template <class F>
  GraphPartitionerRecord::ReviewFunction Review(F f) {
    record().reads_options |= TypedReviewWithOptions<F>;
    return
        [f](SubgraphReview& review, [[maybe_unused]] const PartitionArguments& arguments) mutable {
          if constexpr (TypedReviewWithOptions<F>)
            f(review, arguments);
          else
            f(review);
        };
  }
  GraphPartitionerRecord::ReviewFunction JsonReview(AcceptFunction f) {
    record().reads_options = true;
    return [f = std::move(f)](SubgraphReview& review, const PartitionArguments& arguments) mutable {
      ReviewByJson(review, arguments, f);
    };
  }

 private:
  IntrusivePtr<FunctionPartitioner> partitioner_;
};
GraphPartitionerHost PartitionerHost(int);  // REGISTER_PARTITIONER prefers it to the library's

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/register_partitioner.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_REGISTER_PARTITIONER_HPP_
