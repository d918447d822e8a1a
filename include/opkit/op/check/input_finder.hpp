// InputFinder: finds dtypes and shapes that an operator's inference accepts. CheckOperator and the
// command line generate inputs from them.
#ifndef OPKIT_OP_CHECK_INPUT_FINDER_HPP_
#define OPKIT_OP_CHECK_INPUT_FINDER_HPP_

#include "opkit/op/schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

using InputTypes = std::vector<TensorInfo>;

// Searches for input types that inference accepts.
class InputFinder {
 public:
  using Shapes = std::vector<Shape>;
  using DTypes = std::vector<DType>;

  // Tries `shapes`: one for all inputs, or one for each; if empty, a few shapes that most operators
  // accept. `schema` and `def` must outlive the finder.
  InputFinder(const OpSchema& schema, const OperatorDef& def, Shapes shapes);
  // Returns lists of input types; in each list all inputs have the same dtype. Tries the dtypes
  // that the operator claims. Without claims, tries the usual dtypes, and then the rare dtypes if
  // inference accepts no usual dtype. If inference accepts every usual dtype, returns only the
  // lists of the first dtype. If nothing is found, returns the first list that FindMixed finds.
  std::vector<InputTypes> Find();
  // Returns at most `most` lists of inputs with different shapes. The inputs have the dtypes of
  // `given`, one for each input, or other dtypes if inference refuses `given`.
  std::vector<InputTypes> FindMixed(size_t most, const DTypes& given = {});
  const std::string& refusal() const { return refusal_; }  // the first reason

 private:
  // The search of FindMixed: depth first, input after input.
  struct Search {
    std::vector<Shapes> shapes;  // candidates for each input
    std::vector<DTypes> dtypes;
    bool asks_early;  // drops a list once inference refuses its first inputs
    size_t most;
    int left = 10'000;  // remaining calls of inference
    std::vector<InputTypes> found = {};
  };

  std::vector<InputTypes> FindAlike();
  DTypes ClaimedDTypes() const;
  // Tests inputs of one dtype. A list with one shape applies to every input.
  void Try(DType dtype, const Shapes& shapes, std::vector<InputTypes>* found);
  void Continue(Search& search, InputTypes& begun);
  // True if inference accepts the inputs; missing inputs at the end are unknown.
  bool Accepts(InputTypes inputs);

  const OpSchema& schema_;
  const OperatorDef& def_;
  const size_t count_;
  std::vector<Shapes> shapes_;
  std::string refusal_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/check/impl/input_finder.ipp"
#endif

#endif  // OPKIT_OP_CHECK_INPUT_FINDER_HPP_
