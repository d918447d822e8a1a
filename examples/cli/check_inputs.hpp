// Inputs that `opkit check` tries an operator on.
#ifndef OPKIT_EXAMPLES_CLI_CHECK_INPUTS_HPP_
#define OPKIT_EXAMPLES_CLI_CHECK_INPUTS_HPP_

#include <string>
#include <vector>

#include "opkit/op/schema.hpp"

namespace cli {

using InputTypes = std::vector<opkit::TensorInfo>;

// Those that an operator's inference accepts, of the shapes asked for or of a few that most
// operators take: every dtype that it claims or tells apart from others, all inputs alike; where
// there are no such, the first mixed ones.
class InputFinder {
 public:
  // `shapes`: none, one for all inputs, or one for each.
  InputFinder(const opkit::OpSchema& schema, const opkit::OperatorDef& def,
              std::vector<opkit::Shape> shapes);
  std::vector<InputTypes> Find();
  const std::string& refusal() const { return refusal_; }  // the first

 private:
  using Shapes = std::vector<opkit::Shape>;
  using DTypes = std::vector<opkit::DType>;

  std::vector<InputTypes> FindAlike();
  std::vector<InputTypes> FindMixed();
  DTypes ClaimedDTypes() const;
  // A list of one is for every input.
  void Try(const DTypes& dtypes, const Shapes& shapes, std::vector<InputTypes>* found);

  const opkit::OpSchema& schema_;
  const opkit::OperatorDef& def_;
  const size_t count_;
  std::vector<Shapes> shapes_;
  std::string refusal_;
};

// "float32[2, 3], int64[4]"
std::string TextOf(const InputTypes& inputs);
std::vector<opkit::Tensor> MakeTensors(const InputTypes& inputs);

}  // namespace cli

#endif  // OPKIT_EXAMPLES_CLI_CHECK_INPUTS_HPP_
