// Reads expected.txt: the results of ONNX Runtime for the real models, written by expected.py.
#ifndef OPKIT_TESTS_MODELS_EXPECTED_HPP_
#define OPKIT_TESTS_MODELS_EXPECTED_HPP_

#include <algorithm>
#include <map>
#include <sstream>

#include "inputs.hpp"
#include "support/compare.hpp"

inline constexpr Tolerance kModelTolerance{.rtol = 1e-4, .atol = 1e-5};

// Where the downloads are.
inline std::string DataFolder() {
  const char* folder = std::getenv("OPKIT_DATA_DIR");
  return folder ? folder : OPKIT_DATA_FOLDER;
}

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    opkit::Throw(opkit::ErrorCode::kNotFound, "cannot read ", path,
                 "; ./dev test fetches the models, OPKIT_DATA_DIR says where they are");
  return {std::istreambuf_iterator<char>(file), {}};
}

// One output of a case.
struct ExpectedOutput {
  std::string name;
  opkit::Shape shape{0};
  std::vector<int64_t> argmax;  // of each row of the last axis longer than 1; -1: several are equal
  std::vector<std::pair<int64_t, float>> values;  // by index of the flat output
};

// By case, each with its outputs in the model's order.
inline const std::map<std::string, std::vector<ExpectedOutput>>& ExpectedOutputs() {
  static const auto* all = [] {
    auto* cases = new std::map<std::string, std::vector<ExpectedOutput>>;
    std::istringstream lines(ReadAll(OPKIT_MODELS_EXPECTED));
    for (std::string line; std::getline(lines, line);) {
      if (line[0] == '#') continue;
      std::istringstream words(line);
      std::string name, shape, argmax, value;
      ExpectedOutput output;
      words >> name >> output.name >> shape >> argmax;
      std::vector<int64_t> dims;
      std::istringstream extents(shape);
      for (std::string extent; std::getline(extents, extent, 'x');)
        dims.push_back(std::stoll(extent));
      output.shape = opkit::Shape(opkit::Dims(dims));
      std::istringstream rows(argmax);
      for (std::string row; std::getline(rows, row, ',');)
        output.argmax.push_back(row == "-" ? -1 : std::stoll(row));
      while (words >> value)
        output.values.emplace_back(std::stoll(value), std::stof(value.substr(value.find(':') + 1)));
      (*cases)[name].push_back(std::move(output));
    }
    return cases;
  }();
  return *all;
}

// How an output differs from what is expected, in one sentence; empty where it does not.
inline std::string ModelDifference(const opkit::Tensor& found, const ExpectedOutput& expected) {
  if (found.dtype() != opkit::DType::kFloat32 || !(found.shape() == expected.shape))
    return opkit::StrCat("found ", found, ", expected float32", ToString(expected.shape));
  const std::vector<float> values = found.ToVector<float>();
  for (const auto& [index, value] : expected.values) {
    const float here = values[static_cast<size_t>(index)];
    if (!IsClose(here, value, kModelTolerance))
      return opkit::StrCat("element ", index, ": found ", compare_detail::Text(here), ", expected ",
                           compare_detail::Text(value));
  }
  const size_t row = values.size() / expected.argmax.size();
  for (size_t i = 0; i < expected.argmax.size(); ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * row);
    const int64_t largest =
        std::max_element(begin, begin + static_cast<std::ptrdiff_t>(row)) - begin;
    if (expected.argmax[i] >= 0 && largest != expected.argmax[i])
      return opkit::StrCat("row ", i, ": the largest element is ", largest, ", expected ",
                           expected.argmax[i]);
  }
  return {};
}

#endif  // OPKIT_TESTS_MODELS_EXPECTED_HPP_
