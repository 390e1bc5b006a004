#include "hf/stored/stored_forms.h"

#include <algorithm>
#include <array>

#include "hf/stored/bnb_matrix.h"
#include "hf/stored/fp8_matrix.h"
#include "hf/stored/int4_matrix.h"
#include "hf/stored/mxfp4_stack.h"

namespace strata::detail {
namespace {

constexpr std::array kForms = {
    StoredForm{&BnbMatrix::is_one, &BnbMatrix::open, false},
    StoredForm{&Fp8Matrix::is_one, &Fp8Matrix::open, false},
    StoredForm{&Int4Matrix::is_one, &Int4Matrix::open, false},
    StoredForm{&Mxfp4Stack::is_one, &Mxfp4Stack::open, true},
};

}  // namespace

const StoredForm* stored_form_of(const std::string& weight, const FindTensor& find) {
  const auto found = std::find_if(kForms.begin(), kForms.end(),
                                  [&](const StoredForm& form) { return form.is_one(weight, find); });
  return found == kForms.end() ? nullptr : &*found;
}

}  // namespace strata::detail
