/* Render what pymdownx.arithmatex (generic) marked as a formula; only then is KaTeX loaded. */
const formulas = document.querySelectorAll(".arithmatex");
if (formulas.length) {
  const katexScript = document.createElement("script");
  katexScript.src = new URL("katex/katex.min.js", document.currentScript.src);
  katexScript.addEventListener("load", () => formulas.forEach(renderFormula));
  document.head.append(katexScript);
}

function renderFormula(element) {
  const source = element.textContent.trim();
  const display = source.startsWith("\\[");
  katex.render(source.slice(2, -2), element, { displayMode: display, throwOnError: false });
}
