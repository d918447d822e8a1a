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

  // Tries these shapes: none for a few that most operators take, one for all inputs, or one for
  // each.
  InputFinder(const OpSchema& schema, const OperatorDef& def, Shapes shapes);
  // All inputs alike, in every dtype that the operator claims or tells apart from others; where
  // there are no such, the first that FindMixed finds.
  std::vector<InputTypes> Find();
  // Inputs of different shapes, at most `most` lists, of the given dtypes, one for each input, or
  // of different ones where these are none. Empty for more than three inputs: the lists to try
  // would be too many.
  std::vector<InputTypes> FindMixed(size_t most, const DTypes& given = {});
  const std::string& refusal() const { return refusal_; }  // the first

 private:
  std::vector<InputTypes> FindAlike();
  DTypes ClaimedDTypes() const;
  // A list of one is for every input.
  void Try(const DTypes& dtypes, const Shapes& shapes, std::vector<InputTypes>* found);

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
