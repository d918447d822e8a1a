// The sentences that are rendered and read, with the seeds of their pictures.
#ifndef OPKIT_TESTS_DEMO_SENTENCES_HPP_
#define OPKIT_TESTS_DEMO_SENTENCES_HPP_

#include "render.hpp"

namespace demo {

struct TestSentence {
  std::string text;
  uint64_t seed;
};

inline std::vector<TestSentence> TestSentences() {
  std::vector<TestSentence> sentences;
  for (std::string& text : MakeSentences(2026, 20))
    sentences.push_back({std::move(text), 1000 + sentences.size()});
  return sentences;
}

}  // namespace demo

#endif  // OPKIT_TESTS_DEMO_SENTENCES_HPP_
