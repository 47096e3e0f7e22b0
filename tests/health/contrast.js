// The texts that stand out less than 4.5 to 1 against what is behind them: level AA of the Web Content Accessibility Guidelines.
(() => {
  const canvas = Object.assign(document.createElement('canvas'), {width: 1, height: 1});
  const context = canvas.getContext('2d', {willReadFrequently: true});
  const parsed = colour => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const linear = channel => channel <= .03928 ? channel / 12.92 : ((channel + .055) / 1.055) ** 2.4;
  const luminance = colour => [.2126, .7152, .0722].reduce((sum, part, i) => sum + part * linear(colour[i] / 255), 0);
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = parsed(getComputedStyle(element).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const hasText = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  const low = [];
  for (const element of document.querySelectorAll('main *')) {
    if (!hasText(element) || !element.checkVisibility()) continue;
    const style = getComputedStyle(element), colour = parsed(element.closest('svg') ? style.fill : style.color);
    const [light, dark] = [colour, behind(element)].map(luminance).sort((a, b) => b - a);
    const ratio = (light + .05) / (dark + .05);
    if (ratio < 4.5) low.push(`${element.tagName} "${element.textContent.slice(0, 20)}" ${ratio.toFixed(2)}`);
  }
  return low;
})()
