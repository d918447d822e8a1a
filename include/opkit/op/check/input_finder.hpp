// InputFinder: dtypes and shapes that an operator's inference accepts. CheckOperator and the
// command line make inputs of them.
#ifndef OPKIT_OP_CHECK_INPUT_FINDER_HPP_
#define OPKIT_OP_CHECK_INPUT_FINDER_HPP_

#include "opkit/op/schema.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

using InputTypes = std::vector<TensorInfo>;

class InputFinder {
 public:
  using Shapes = std::vector<Shape>;
  using DTypes = std::vector<DType>;

  // Both must outlive it. Tries these shapes: none for a few that most operators take, one for all
  // inputs, or one for each.
  InputFinder(const OpSchema& schema, const OperatorDef& def, Shapes shapes);
  // All inputs alike, in every dtype that the operator claims or tells apart from others, rare ones
  // where it takes none of the usual; where there are no such, the first that FindMixed finds.
  std::vector<InputTypes> Find();
  // Inputs of different shapes, at most `most` lists, of the given dtypes, one for each input, or
  // of different ones where inference accepts none of these.
  std::vector<InputTypes> FindMixed(size_t most, const DTypes& given = {});
  const std::string& refusal() const { return refusal_; }  // the first

 private:
  // The search of FindMixed: depth first, input after input.
  struct Search {
    std::vector<Shapes> shapes;  // to try for each input
    std::vector<DTypes> dtypes;
    bool asks_early;  // the beginning of a list that inference refuses is not continued
    size_t most;
    int left = 10'000;  // inferences
    std::vector<InputTypes> found = {};
  };

  std::vector<InputTypes> FindAlike();
  DTypes ClaimedDTypes() const;
  // A list of one is for every input.
  void Try(const DTypes& dtypes, const Shapes& shapes, std::vector<InputTypes>* found);
  void Continue(Search& search, InputTypes& begun);
  // Inputs that are missing at the end are not known yet.
  bool Accepts(InputTypes inputs);

  const OpSchema& schema_;
  const OperatorDef& def_;
  const size_t count_;
  std::vector<Shapes> shapes_;
  std::string refusal_;
};

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/check/impl/input_finder.ipp"
#endif

#endif  // OPKIT_OP_CHECK_INPUT_FINDER_HPP_
