#!/usr/bin/env python3
"""Writes tests/text/tokenizers/: small tokenizers in the formats in which GPT-2, LLaMA-3, Qwen2, GLM-4,
Mistral, Phi-3, Gemma and Granite are shipped, and the ids of difficult texts according to Hugging Face's `tokenizers`.
  pip install tokenizers==0.23.3
"""
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parents[1] / "tests/text/tokenizers"
CORPUS = """The quick brown fox jumps over the lazy dog, and the dog doesn't mind: it's 1813, or 2024. We'll see; they've
seen it, I'm told, and you'd agree. THE DOG DOESN'T MIND. Numbers: 1234567890, 3.14159, 100 000.
    for (int i = 0; i < n; ++i) { total += values[i]; }\r\n\r\n\tif (total > 100) return total;  // the end
def encode(text):\n        return [token for token in text.split(" ") if token]\n\n\n
\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u3002\u660e\u5929\u5929\u6c14\u4e5f\u597d\uff01\n\u4eca\u5929\u662f\u661f\u671f\u5929\u3002
caf\u00e9 na\u00efve \u00fcber \u00c5ngstr\u00f6m; caf\u00e9s \u2014 \u201cquoted\u201d \U0001F600\U0001F600 \U0001F44D\n""" * 3
WIDE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def split(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(pre_tokenizer, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator([CORPUS], trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def gpt2():
    tokenizer = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return json.loads(tokenizer.to_str())


def granite():
    tokenizer = trained(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    tokenizer.add_special_tokens(["<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"])
    return json.loads(tokenizer.to_str())


def llama3():
    tokenizer = trained(split(WIDE % "{1,3}"))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>"])
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", bos)])])
    root = json.loads(tokenizer.to_str())
    model = root["model"]
    # A token that no merge produces, so that ignore_merges has an effect; merges as older writers format
    # them.
    vocab = {key: id + 1 if id >= 400 else id for key, id in model["vocab"].items()}
    model["vocab"] = {**vocab, "\u0120queen": 400}
    for token in root["added_tokens"]:
        token["id"] += 1
    template = root["post_processor"]["processors"][1]["special_tokens"]["<|begin_of_text|>"]
    template["ids"] = [bos + 1]
    model["ignore_merges"] = True
    model["merges"] = [" ".join(pair) for pair in model["merges"]]
    return root


def qwen2():
    tokenizer = trained(split(WIDE % ""), normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False),
                          AddedToken("r\u00e9sum\u00e9", normalized=True), AddedToken("e\u0301t\u00e9", normalized=True)])
    return json.loads(tokenizer.to_str())


def glm4():
    tokenizer = trained(split(WIDE % "{1,3}"))
    tokenizer.add_special_tokens([
        "<|endoftext|>", "[gMASK]", "<sop>", "<|user|>", AddedToken("<|left|>", lstrip=True),
        AddedToken("<|right|>", rstrip=True), AddedToken("<|both|>", lstrip=True, rstrip=True),
        AddedToken("word", single_word=True)])
    tokenizer.add_tokens([AddedToken("the dog", normalized=False), AddedToken("the d", normalized=True),
                          AddedToken("  "), AddedToken("\u00a0x\u3000", normalized=False), AddedToken("<sop", normalized=True),
                          AddedToken("in", single_word=True, lstrip=True)])
    root = json.loads(tokenizer.to_str())
    root["model"]["byte_fallback"] = True
    root["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed", invert=True)
    return root


def sentencepiece(normalizer, pre_tokenizer, decoder, special, cut=True):
    """Character tokens, and byte tokens for all other characters. With `cut` no token crosses a space."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizer or normalizers.Replace(" ", SPACE)
    if cut:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="never", split=True)
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(CORPUS.split("\n"), trainers.BpeTrainer(
        vocab_size=560, special_tokens=[*special, *byte_tokens], show_progress=False))
    root = json.loads(tokenizer.to_str())
    root["added_tokens"] = [token for token in root["added_tokens"] if token["content"] not in byte_tokens]
    root["normalizer"] = json.loads(normalizer.__getstate__()) if normalizer else None
    root["pre_tokenizer"] = json.loads(pre_tokenizer.__getstate__()) if pre_tokenizer else None
    root["decoder"] = json.loads(decoder.__getstate__())
    return root


SPACE = "\u2581"
PREPEND = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
STRIP = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def with_bos(root, bos):
    ids = {token["content"]: token["id"] for token in root["added_tokens"]}
    root["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [ids[bos]], "tokens": [bos]}}}
    return root


def mistral():
    return with_bos(sentencepiece(PREPEND, None, STRIP, ["<unk>", "<s>", "</s>"]), "<s>")


def mistral_v3():
    root = sentencepiece(None, pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first", split=False), STRIP,
                         ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    return with_bos(root, "<s>")


def phi3():
    root = sentencepiece(PREPEND, None, STRIP, ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|user|>", "<|end|>"])
    for token in root["added_tokens"]:
        token["rstrip"] = token["content"] in ("</s>", "<|user|>", "<|end|>")
    return root


def gemma():
    decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    split = pre_tokenizers.Split(" ", "merged_with_previous")
    root = sentencepiece(normalizers.Replace(" ", SPACE), split, decoder,
                         ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"], cut=False)
    return with_bos(root, "<bos>")


TEXTS = [
    "", " ", "  ", "a", "Hello world", "the dog doesn't", "THE DOG DOESN'T'S 'S 'sT 'RE 'lL 'VEx '\u017f '\u017ft", "I'll we've he'd O'Brien 'tis",
    "1 12 123 1234 12345678 3.14 \u0663\u0664\u0665\u0666 \u00bd\u00b2 \u2167\u2168", "a   b", "a \n b", "a\n\nb", "a\r\n\r\nb", "x \n\n  y", "  \n  ", "\n \n\t",
    "foo(bar) -- !!\n\n!! \n", "tab\tword\t\ttwo", " \u00a0a\u3000\u3000b\u2009 c", "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u660e\u5929\u3002\n\u597d",
    "caf\u00e9 cafe\u0301 e\u0301te\u0301 \u00e9t\u00e9 re\u0301sume\u0301 r\u00e9sum\u00e9", "\u1112\u1161\u11ab \ud55c\uae00 \u1100\u1161", "\u0301a q\u0307\u0323 \u1e0b\u0323 \ufb1d \u0344",
    "\u212b \u2126 \u037e \u1fef \ufa10 \U0002f800", "\U0001F600\U0001F44D\U0001F3FD \U0001F468\u200d\U0001F4BB", " queen", "a queen queens",
    "<|endoftext|>", "One.<|endoftext|>Two.<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n<think>\n\n</think>", "<|begin_of_text|>a<|eot_id|>",
    "a <|left|> b <|right|> c  \n<|both|>\t d", "<|right|> <|left|>", "<|right|>  <|right|>  <|both|> ", "word words sword word. _word word", "the dog the d the  dog",
    "[gMASK]<sop><|user|>\nhi", "<sop <sop> <<sop>", "a\u00a0x\u3000b in\u00a0 in in. inn", "      x", "end  ", "\u2581", "a\u2581b \u2581 c",
    "<s>a</s>  b", "<start_of_turn>user\nHi<end_of_turn>\n", "<0x41> <0x0A>", "[INST] Hi [/INST] Yes</s>[INST]no",
    " the quick brown  fox   jumps over the lazy dog, " * 4,
]
PARTS = ["'", "s", "'s", "'LL", " ", "  ", "\n", "\r\n", "\t", "a", "the", " dog", "Z", "9", "42", "\u0663", "\u00bd", ".", "(", "--", "\u3000", "\u00a0",
         "\u4eca\u5929", "\u3002", "e\u0301", "\u00e9", "\u0301", "\u0323", "\u1112\u1161", "\U0001F600", "\u200d", "<|endoftext|>", "<sop>", "<|left|>", "<|right|>",
         "word", "<think>", "<", "_", "\u017f", "\x00", "\x1f", "\u05d0", "\u0e01\u0e34"]


def main():
    rng = random.Random(1813)
    texts = TEXTS + ["".join(rng.choice(PARTS) for _ in range(rng.randint(2, 14))) for _ in range(120)]
    OUT.mkdir(parents=True, exist_ok=True)
    expected = {"texts": texts, "families": {}}
    for make in (gpt2, llama3, qwen2, glm4, mistral, mistral_v3, phi3, gemma, granite):
        root = make()
        path = OUT / f"{make.__name__}.json"
        path.write_text(json.dumps(root, ensure_ascii=True, separators=(",", ":")) + "\n")
        tokenizer = Tokenizer.from_file(str(path))
        ids = {"recognised": [tokenizer.encode(text, add_special_tokens=False).ids for text in texts],
               "template": tokenizer.encode("Hello", add_special_tokens=True).ids}
        tokenizer.encode_special_tokens = True
        ids["as_text"] = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        ids["as_text"] = [None if a == b else a for a, b in zip(ids["as_text"], ids["recognised"])]
        expected["families"][make.__name__] = ids
    lines = json.dumps(expected, ensure_ascii=True, separators=(",", ":")).replace("],[", "],\n[").replace('","', '",\n"')
    (OUT / "expected.json").write_text(lines + "\n")


main()
