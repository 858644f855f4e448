/* Render what pymdownx.arithmatex (generic) marked as a formula. */
for (const element of document.querySelectorAll(".arithmatex")) {
  const source = element.textContent.trim();
  const display = source.startsWith("\\[");
  katex.render(source.slice(2, -2), element, { displayMode: display, throwOnError: false });
}
